"""Trains a GPT-2 on the characters of a text with PyTorch: the yardstick for `meshwork train gpt` with the same options.

    meshwork train gpt --data text.txt OPTIONS --steps 1 --lr 0 --warmup 0 --schedule constant --save initial
    meshwork export --checkpoint initial --to folder
    python3 bench/oracle/gpt_torch.py --model folder --data text.txt --steps 600 --batch 32 --lr 0.001 --warmup 50
    meshwork train gpt --data text.txt OPTIONS --optimizer adamw --steps 600 --batch 32 --lr 0.001 --warmup 50 \
        --weight-decay 0.1 --beta2 0.999 --max-norm 1 --schedule cosine --dropout 0

So both begin with equal weights; batches are shuffled by each one's own generator. The last tenth of the text is for
validation; the decay is for matrices alone; the rate rises for the warm-up and then falls as a cosine; gradients are
clipped to a global norm of 1. Prints the validation loss after the last step. Needs PyTorch 2.x and transformers.
"""

import argparse
import math
import time
from pathlib import Path

import torch
from torch import nn
from transformers import GPT2LMHeadModel


def sequences(tokens, length):
    """Inputs and targets [N, length]."""
    count = (len(tokens) - 1) // length
    return tokens[: count * length].view(count, length), tokens[1 : count * length + 1].view(count, length)


def loss_of(model, inputs, targets):
    return nn.functional.cross_entropy(model(inputs).logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def validation_loss(model, inputs, targets, batch=64):
    model.eval()
    parts = zip(inputs.split(batch), targets.split(batch))
    total = sum(loss_of(model, x, y).item() * len(x) for x, y in parts)
    model.train()
    return total / len(inputs)


def rate(step, args):
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    return args.lr * 0.5 * (1 + math.cos(math.pi * (step - args.warmup) / (args.steps - args.warmup)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder with the initial weights")
    parser.add_argument("--data", required=True, help="the text")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--warmup", type=int, default=50)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    model = GPT2LMHeadModel.from_pretrained(args.model, attn_implementation="sdpa")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    text = Path(args.data).read_text()
    number = {character: i for i, character in enumerate(sorted(set(text)))}
    tokens = torch.tensor([number[character] for character in text])
    cut, length = int(len(tokens) * 0.9), model.config.n_positions
    training, validation = sequences(tokens[:cut], length), sequences(tokens[cut:], length)

    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": args.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.999), eps=1e-8)
    order, at, start = torch.empty(0), 0, time.time()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, args)
        if at + args.batch > len(order):
            order, at = torch.randperm(len(training[0])), 0
        chosen = order[at : at + args.batch]
        at += args.batch
        loss = loss_of(model, training[0][chosen], training[1][chosen])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"validation loss {validation_loss(model, *validation):.4f} after {args.steps} steps, {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
