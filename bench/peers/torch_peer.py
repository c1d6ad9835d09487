"""PyTorch on the measured work: `torch_peer.py WORK…`, one line `row<TAB>unit<TAB>value` each.

Work: lenet, mlp, gpt, gpt-bf16 (training steps; bf16 by autocast), each also with -compile behind it (through
torch.compile), gemm, conv, pool, elementwise, first (one LeNet step, timed from outside), version. The number of threads is in THREADS.
"""

import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(int(os.environ["THREADS"]))
torch.manual_seed(0)


def report(row, unit, value):
    print(f"{row}\t{unit}\t{value:.6g}", flush=True)


def seconds(work, budget=0.6):
    """Median time of one call."""
    for _ in range(3):
        work()
    times, end = [], time.perf_counter() + budget
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


class Block(nn.Module):
    """Of GPT-2: norms before attention and before two layers with GELU, each added to its input."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        split = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = split.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2, whose head has the weights of its embedding."""

    def __init__(self, vocabulary=512, context=128, layers=4, width=256, heads=8):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[-1]]
        return F.linear(self.norm(self.blocks(x)), self.embedding.weight)


def train(row, unit, optimizer, loss_of, samples, steps, compiled):
    """Reports samples (or tokens) a second."""
    forward = torch.compile(loss_of) if compiled else loss_of

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(max(5, steps // 10)):
        step()
    times = []
    for _ in range(6):
        start = time.perf_counter()
        for _ in range(steps // 6):
            step()
        times.append((time.perf_counter() - start) / (steps // 6))
    report(row, unit, samples / statistics.median(times))


def classifier(name, build, batch, steps, compiled=False):
    model = build()
    images, labels = torch.randn(batch, 1, 28, 28), torch.arange(batch) * 7 % 10
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of():
        return F.cross_entropy(model(images), labels)

    train(f"{name} b{batch}", "images/s", optimizer, loss_of, batch, steps, compiled)


def classifiers(name, build, compiled=False):
    for batch, steps in {"lenet": [(256, 60), (32, 240)], "mlp": [(256, 600), (32, 1800)]}[name]:
        torch._dynamo.reset() if compiled else None
        classifier(name, build, batch, steps, compiled)


def transformer(name, precision, compiled=False):
    model = Gpt()
    tokens = torch.randint(0, 512, (16, 129))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)

    def loss_of():
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = model(tokens[:, :-1])
            return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    train(name, "tokens/s", optimizer, loss_of, 16 * 128, 24, compiled)


def gemm():
    """Names as `meshwork bench gemm` has them; the gradient of a weight is dyᵀ · x."""
    for name in os.environ["GEMM"].split():
        sizes, _, lies = name.partition("-")
        lies = "tn" if lies == "grad" else lies or "nn"
        *batch, m, k, n = map(int, sizes.split("x"))
        a = torch.randn(*batch, m, k) if lies[0] == "n" else torch.randn(*batch, k, m).mT
        b = torch.randn(*batch, k, n) if lies[1] == "n" else torch.randn(*batch, n, k).mT
        c = torch.empty(*batch, m, n)
        flops = 2 * m * k * n * (batch[0] if batch else 1)
        report(f"gemm {name}", "GFLOP/s", flops / seconds(lambda: torch.matmul(a, b, out=c)) / 1e9)


def conv():
    """Names as `meshwork bench conv` has them."""
    for name in os.environ["CONV"].split():
        sizes, kernel, *options = name.split("-")
        sizes, (outputs, *kernel) = list(map(int, sizes.split("x"))), map(int, kernel.split("x"))
        options = {"s": 1, "p": 0, "d": 1, "g": 1} | {option[0]: int(option[1:]) for option in options}
        x, w = torch.randn(sizes), torch.randn(outputs, sizes[1] // options["g"], *kernel)
        stride, padding, dilation = ([options[letter]] * len(kernel) for letter in "spd")
        given = stride, padding, dilation, False, [0] * len(kernel), options["g"]
        dy = torch.randn_like(torch.ops.aten.convolution(x, w, None, *given))
        flops = 2 * dy.numel() * w[0].numel()

        def gradient(*mask):
            return torch.ops.aten.convolution_backward(dy, x, w, None, *given, mask)

        for what, work in [
            ("forward", lambda: torch.ops.aten.convolution(x, w, None, *given)),
            ("input gradient", lambda: gradient(True, False, False)),
            ("weight gradient", lambda: gradient(False, True, False)),
        ]:
            report(f"conv {name} {what}", "GFLOP/s", flops / seconds(work) / 1e9)


def pool():
    """Names as `meshwork bench pool` has them. As in a training, maxima come with their places, which the gradient reads."""
    aten = torch.ops.aten
    for name in os.environ["POOL"].split():
        kind, sizes, kernel, *options = name.split("-")
        sizes, kernel = list(map(int, sizes.split("x"))), list(map(int, kernel.split("x")))
        options = {"p": 0, "d": 1} | {option[0]: int(option[1:]) for option in options}
        # One dimension is two, as PyTorch itself has it.
        one = [1] if len(kernel) == 1 else []
        x = torch.randn(sizes[:2] + one + sizes[2:])
        stride = one + ([options["s"]] * len(kernel) if "s" in options else kernel)
        padding, dilation = ([0] * len(one) + [options["p"]] * len(kernel)), one + [options["d"]] * len(kernel)
        window, dims = one + kernel, max(2, len(kernel))
        if kind == "max":
            forward, backward = getattr(aten, f"max_pool{dims}d_with_indices"), getattr(aten, f"max_pool{dims}d_with_indices_backward")
            given = window, stride, padding, dilation, False
            y, places = forward(x, *given)
            dy = torch.randn_like(y)
            work = [lambda: forward(x, *given), lambda: backward(dy, x, *given, places)]
        else:
            forward, backward = getattr(aten, f"avg_pool{dims}d"), getattr(aten, f"avg_pool{dims}d_backward")
            given = window, stride, padding, False, True, None
            dy = torch.randn_like(forward(x, *given))
            work = [lambda: forward(x, *given), lambda: backward(dy, x, *given)]
        for what, inputs, work in [("forward", 1, work[0]), ("gradient", 2 if kind == "max" else 1, work[1])]:
            gigabytes = 4e-9 * (inputs * x.numel() + dy.numel())
            report(f"pool {name} {what}", "GB/s", gigabytes / seconds(work))


def elementwise():
    n = 10_000
    a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    gigabytes = n * n * 4e-9
    for name, matrices, work in [
        ("a + b", 3, lambda: torch.add(a, b, out=out)),
        ("a * b", 3, lambda: torch.mul(a, b, out=out)),
        ("exp(a)", 2, lambda: torch.exp(a, out=out)),
        ("relu(a)", 2, lambda: torch.clamp_min(a, 0, out=out)),
        ("sum(a)", 1, lambda: a.sum()),
        ("max(a)", 1, lambda: a.max()),
        ("sum(a, 0)", 1, lambda: a.sum(0)),
        ("sum(a, 1)", 1, lambda: a.sum(1)),
        ("(a + row) * column", 2, lambda: torch.mul(torch.add(a, b[0], out=out), b[:, :1], out=out)),
        ("a.t() + b", 3, lambda: torch.add(a.t(), b, out=out)),
        ("softmax(a, 1)", 2, lambda: torch.softmax(a, 1, out=out)),
    ]:
        report(name, "GB/s", matrices * gigabytes / seconds(work))
    for columns in [1000, 100]:
        x, out = a.view(-1, columns), out.view(-1, columns)
        weight, bias = torch.randn(columns), torch.randn(columns)
        for name, work in [
            ("softmax(x, 1)", lambda: torch.softmax(x, 1, out=out)),
            ("layer_norm(x)", lambda: F.layer_norm(x, (columns,), weight, bias)),
        ]:
            report(f"{name} of {columns} columns", "GB/s", 2 * gigabytes / seconds(work))


WORK = {
    "lenet": lambda: classifiers("lenet", lenet),
    "mlp": lambda: classifiers("mlp", mlp),
    "lenet-compile": lambda: classifiers("lenet", lenet, True),
    "mlp-compile": lambda: classifiers("mlp", mlp, True),
    "gpt": lambda: transformer("gpt", "f32"),
    "gpt-bf16": lambda: transformer("gpt bf16", "bf16"),
    "gpt-compile": lambda: transformer("gpt", "f32", True),
    "gpt-bf16-compile": lambda: transformer("gpt bf16", "bf16", True),
    "gemm": gemm,
    "conv": conv,
    "pool": pool,
    "elementwise": elementwise,
    "first": lambda: classifier("first step", lenet, 32, 6),
    "version": lambda: print(torch.__version__),
}

for name in sys.argv[1:]:
    WORK[name]()
