"""PyTorch on the measured work: `torch_peer.py WORK…`, one line `row<TAB>unit<TAB>value` each.

Work: lenet, mlp (training steps), lenet-compile, mlp-compile (the same through torch.compile), gemm, elementwise,
first (one LeNet step, timed from outside), version. The number of threads is in THREADS.
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


def train(name, build, batch, steps, compiled):
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images, labels = torch.randn(batch, 1, 28, 28), torch.arange(batch) * 7 % 10

    def loss_of():
        return F.cross_entropy(model(images), labels)

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
    report(f"{name} b{batch}", "images/s", batch / statistics.median(times))


def training(name, build, compiled=False):
    for batch, steps in {"lenet": [(256, 60), (32, 240)], "mlp": [(256, 600), (32, 1800)]}[name]:
        torch._dynamo.reset() if compiled else None
        train(name, build, batch, steps, compiled)


def gemm():
    for sizes in os.environ["GEMM"].split():
        *batch, m, k, n = map(int, sizes.split("x"))
        a, b, c = torch.randn(*batch, m, k), torch.randn(*batch, k, n), torch.empty(*batch, m, n)
        flops = 2 * m * k * n * (batch[0] if batch else 1)
        report(f"gemm {sizes}", "GFLOP/s", flops / seconds(lambda: torch.matmul(a, b, out=c)) / 1e9)


def elementwise():
    n = 10_000
    a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    gigabytes = n * n * 4e-9
    for name, matrices, work in [
        ("a + b", 3, lambda: torch.add(a, b, out=out)),
        ("relu(a)", 2, lambda: torch.clamp_min(a, 0, out=out)),
        ("sum(a)", 1, lambda: a.sum()),
        ("max(a)", 1, lambda: a.max()),
        ("sum(a, 0)", 1, lambda: a.sum(0)),
        ("sum(a, 1)", 1, lambda: a.sum(1)),
    ]:
        report(name, "GB/s", matrices * gigabytes / seconds(work))


WORK = {
    "lenet": lambda: training("lenet", lenet),
    "mlp": lambda: training("mlp", mlp),
    "lenet-compile": lambda: training("lenet", lenet, True),
    "mlp-compile": lambda: training("mlp", mlp, True),
    "gemm": gemm,
    "elementwise": elementwise,
    "first": lambda: train("first step", lenet, 32, 6, False),
    "version": lambda: print(torch.__version__),
}

for name in sys.argv[1:]:
    WORK[name]()
