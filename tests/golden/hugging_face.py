"""Writes the golden files of the interchange with Hugging Face: small models as `transformers` saves them, and what it
says about them.

    python3 tests/golden/hugging_face.py            write all models below hugging_face/
    python3 tests/golden/hugging_face.py --check    write nothing; fail if a file is not what would be written

See README.md for the format.
"""

import argparse
import copy
import sys
import tempfile
import zlib
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from container import serialize
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).resolve().parent / "hugging_face"
VOCABULARY, CONTEXT, BATCH, STEPS = 23, 12, 3, 20
ADAMW = {"lr": 3e-3, "betas": (0.9, 0.95), "eps": 1e-8}
WEIGHT_DECAY = 0.1


def gpt2():
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=CONTEXT,
            n_embd=24,
            n_layer=2,
            n_head=4,
            bos_token_id=None,
            eos_token_id=None,
            embd_pdrop=0.1,
            resid_pdrop=0.1,
            attn_pdrop=0.2,
            layer_norm_epsilon=2e-5,
        )
    )


def llama():
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            max_position_embeddings=CONTEXT,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            rms_norm_eps=1e-5,
            rope_theta=500.0,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def llama_tied():
    """With biases, heads that are not as wide as the features divided by their number, and weights in bf16."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            max_position_embeddings=CONTEXT,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=12,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


MODELS = {"gpt2": gpt2, "llama": llama, "llama_tied": llama_tied}
IN_BF16 = {"llama_tied"}


def draw(name, parameter):
    """Values that are not zero anywhere, of the size that trained weights have; they depend on the name alone."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    noise = torch.randn(parameter.shape, generator=generator)
    is_norm = parameter.dim() == 1 and name.endswith("weight")
    return 1 + 0.1 * noise if is_norm else (0.1 if parameter.dim() == 1 else 0.2) * noise


def files_of(name):
    """The files of a model by their paths: as `transformers` saves it, and what it says about it."""
    model = MODELS[name]().eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            value = draw(key, parameter)
            parameter.copy_(value.bfloat16() if name in IN_BF16 else value)
    saved = copy.deepcopy(model).bfloat16() if name in IN_BF16 else model
    with tempfile.TemporaryDirectory() as folder:
        saved.save_pretrained(folder, max_shard_size="20KB" if name == "llama" else "1GB")
        paths = [p for p in Path(folder).iterdir() if p.name != "generation_config.json"]
        files = {f"{name}/{p.name}": p.read_bytes() for p in paths}

    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    tokens = torch.randint(VOCABULARY, (STEPS, BATCH, CONTEXT + 1), generator=generator)
    metadata = {"torch": torch.__version__, "transformers": transformers.__version__}
    expected = {"tokens": tokens}
    with torch.no_grad():
        expected["logits"] = model(tokens[0, :, :-1]).logits
    loss_of(model, tokens[0]).backward()
    gradients = {key: parameter.grad.clone() for key, parameter in model.named_parameters()}
    expected["losses"] = train(model, tokens)
    files[f"{name}/expected.safetensors"] = serialize(expected, metadata)
    files[f"{name}/gradients.safetensors"] = serialize(gradients, metadata)
    return files


def loss_of(model, tokens):
    """The mean cross entropy of each token after those before it."""
    logits = model(tokens[:, :-1]).logits
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def train(model, tokens):
    """The losses of one step of AdamW a batch; weights decay in matrices only."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, **ADAMW)
    losses = []
    for batch in tokens:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def main():
    parser = argparse.ArgumentParser(description="Writes the golden files of the interchange with Hugging Face.")
    parser.add_argument("--check", action="store_true", help="compare with the files on disk instead of writing them")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    stale = []
    for name in MODELS:
        for path, content in sorted(files_of(name).items()):
            place = HERE / path
            if not options.check:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            elif not place.exists() or place.read_bytes() != content:
                stale.append(path)
            print(f"{path:48} {len(content):9,} bytes")
    if stale:
        sys.exit(f"not what would be written: {', '.join(stale)}")


if __name__ == "__main__":
    main()
