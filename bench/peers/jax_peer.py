"""JAX on the measured work: `jax_peer.py WORK…`, one line `row<TAB>unit<TAB>value` each.

Needs jax and optax. Work: lenet, mlp (training steps, each one jitted function), gemm, version.
"""

import functools
import os
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import optax
from jax import lax

KEY = jax.random.PRNGKey(0)


def report(row, unit, value):
    print(f"{row}\t{unit}\t{value:.6g}", flush=True)


def seconds(work, budget=0.6):
    """Median time of one call."""
    for _ in range(3):
        work().block_until_ready()
    times, end = [], time.perf_counter() + budget
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        work().block_until_ready()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def weights(*shape, inputs):
    return jax.random.uniform(KEY, shape, minval=-1, maxval=1) / inputs**0.5


def linear(inputs, outputs):
    return {"w": weights(inputs, outputs, inputs=inputs), "b": jnp.zeros(outputs)}


def conv(p, x):
    return lax.conv_general_dilated(x, p["w"], (1, 1), "VALID") + p["b"][:, None, None]


def avg_pool(x):
    return lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4


def lenet(p, x):
    x = avg_pool(jax.nn.relu(conv(p["conv1"], x)))
    x = avg_pool(jax.nn.relu(conv(p["conv2"], x)))
    return mlp(p, x)


def mlp(p, x):
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ p["fc1"]["w"] + p["fc1"]["b"])
    return x @ p["fc2"]["w"] + p["fc2"]["b"]


def parameters(name):
    if name == "mlp":
        return {"fc1": linear(784, 256), "fc2": linear(256, 10)}
    return {
        "conv1": {"w": weights(20, 1, 3, 3, inputs=9), "b": jnp.zeros(20)},
        "conv2": {"w": weights(50, 20, 5, 5, inputs=500), "b": jnp.zeros(50)},
        "fc1": linear(800, 128),
        "fc2": linear(128, 10),
    }


def train(name, forward, batch, steps):
    images, labels = jax.random.normal(KEY, (batch, 1, 28, 28)), jnp.arange(batch) * 7 % 10

    optimizer = optax.sgd(0.1)

    def loss_of(p):
        return optax.softmax_cross_entropy_with_integer_labels(forward(p, images), labels).mean()

    def update(p, state):
        loss, gradients = jax.value_and_grad(loss_of)(p)
        updates, state = optimizer.update(gradients, state, p)
        return optax.apply_updates(p, updates), state, loss

    step = jax.jit(update, donate_argnums=(0, 1))
    p = parameters(name)
    state = optimizer.init(p)
    for _ in range(max(5, steps // 10)):
        p, state, loss = step(p, state)
    times = []
    for _ in range(6):
        jax.block_until_ready(p)
        start = time.perf_counter()
        for _ in range(steps // 6):
            p, state, loss = step(p, state)
        jax.block_until_ready(p)
        times.append((time.perf_counter() - start) / (steps // 6))
    report(f"{name} b{batch}", "images/s", batch / statistics.median(times))


def gemm():
    """Names as `meshwork bench gemm` has them; the gradient of a weight is dyᵀ · x."""
    for name in os.environ["GEMM"].split():
        sizes, _, lies = name.partition("-")
        lies = "tn" if lies == "grad" else lies or "nn"
        *batch, m, k, n = map(int, sizes.split("x"))
        left, right = ("km" if lies[0] == "t" else "mk"), ("nk" if lies[1] == "t" else "kn")
        size = {"m": m, "k": k, "n": n}
        a, b = (jax.random.normal(KEY, (*batch, *(size[d] for d in dims))) for dims in (left, right))
        product = jax.jit(functools.partial(jnp.einsum, f"...{left},...{right}->...mn"))
        flops = 2 * m * k * n * (batch[0] if batch else 1)
        report(f"gemm {name}", "GFLOP/s", flops / seconds(lambda: product(a, b)) / 1e9)


WORK = {
    "lenet": lambda: [train("lenet", lenet, 256, 24), train("lenet", lenet, 32, 120)],
    "mlp": lambda: [train("mlp", mlp, 256, 600), train("mlp", mlp, 32, 1800)],
    "gemm": gemm,
    "version": lambda: print(jax.__version__),
}

for name in sys.argv[1:]:
    WORK[name]()
