"""Optimizers: two small parameters, ten steps, gradients given; the parameters after every step.

Every case stores `<p>` (the initial value), `gradients.<p>` and `output.<p>` (both with the step as their first
dimension) for the parameters p = a [3, 5] and b [7], and `lr` (f64, the learning rate of every step).
"""

import zlib

import torch
from group import Group

STEPS = 10
SHAPES = {"a": (3, 5), "b": (7,)}


def make():
    group = Group("optim")
    sgd = {"lr": 0.1, "momentum": 0.0, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0}
    adam = {"lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}
    adamw = {**adam, "weight_decay": 0.01}
    rmsprop = {"lr": 0.01, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0.0, "momentum": 0.0, "centered": False}
    adagrad = {"lr": 0.1, "lr_decay": 0.0, "weight_decay": 0.0, "initial_accumulator_value": 0.0, "eps": 1e-10}

    def add(op, variant, optimizer, defaults, changing_lr=False, **changes):
        run(group, f"{op}/{variant}", op, optimizer, {**defaults, **changes}, changing_lr)

    add("sgd", "plain", torch.optim.SGD, sgd)
    add("sgd", "momentum", torch.optim.SGD, sgd, momentum=0.9)
    add("sgd", "momentum_changing_lr", torch.optim.SGD, sgd, momentum=0.9, changing_lr=True)
    add("sgd", "dampening", torch.optim.SGD, sgd, momentum=0.9, dampening=0.3)
    add("sgd", "nesterov", torch.optim.SGD, sgd, momentum=0.8, nesterov=True)
    add("sgd", "weight_decay", torch.optim.SGD, sgd, weight_decay=0.05)
    add("sgd", "nesterov_weight_decay", torch.optim.SGD, sgd, momentum=0.9, nesterov=True, weight_decay=0.05)
    add("adam", "plain", torch.optim.Adam, adam)
    add("adam", "betas_eps", torch.optim.Adam, adam, betas=[0.7, 0.95], eps=1e-3)
    add("adam", "weight_decay", torch.optim.Adam, adam, weight_decay=0.1)
    add("adam", "changing_lr", torch.optim.Adam, adam, changing_lr=True)
    add("adamw", "plain", torch.optim.AdamW, adamw)
    add("adamw", "no_decay", torch.optim.AdamW, adamw, weight_decay=0.0)
    add("adamw", "weight_decay", torch.optim.AdamW, adamw, weight_decay=0.3, betas=[0.8, 0.99], eps=1e-6)
    add("adamw", "changing_lr", torch.optim.AdamW, adamw, weight_decay=0.3, changing_lr=True)
    add("rmsprop", "plain", torch.optim.RMSprop, rmsprop)
    add("rmsprop", "momentum", torch.optim.RMSprop, rmsprop, momentum=0.9)
    add("rmsprop", "centered", torch.optim.RMSprop, rmsprop, centered=True)
    everything = {"momentum": 0.7, "centered": True, "weight_decay": 0.1, "alpha": 0.9, "eps": 1e-5}
    add("rmsprop", "everything", torch.optim.RMSprop, rmsprop, changing_lr=True, **everything)
    add("adagrad", "plain", torch.optim.Adagrad, adagrad)
    add("adagrad", "lr_decay", torch.optim.Adagrad, adagrad, lr_decay=0.1)
    add("adagrad", "weight_decay", torch.optim.Adagrad, adagrad, weight_decay=0.1)
    add("adagrad", "initial_accumulator", torch.optim.Adagrad, adagrad, initial_accumulator_value=0.5, lr_decay=0.05)
    return group


def run(group, name, op, optimizer, args, changing_lr):
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).float()

    initial = {key: draw(*shape) for key, shape in SHAPES.items()}
    gradients = {key: draw(STEPS, *shape) for key, shape in SHAPES.items()}
    rates = [args["lr"] * (0.5 ** (step // 3) if changing_lr else 1.0) for step in range(STEPS)]

    parameters = {key: value.double().requires_grad_() for key, value in initial.items()}
    steps = {key: [] for key in SHAPES}
    engine = optimizer(parameters.values(), **{**args, "betas": tuple(args["betas"])} if "betas" in args else args)
    for step, rate in enumerate(rates):
        engine.param_groups[0]["lr"] = rate
        for key, parameter in parameters.items():
            parameter.grad = gradients[key][step].double()
        engine.step()
        for key, parameter in parameters.items():
            steps[key].append(parameter.detach().clone())

    case = {"name": name, "op": op, "args": args, "inputs": list(SHAPES), "steps": STEPS}
    tensors = {"lr": torch.tensor(rates, dtype=torch.float64)}
    for key in SHAPES:
        tensors[key] = initial[key]
        tensors[f"gradients.{key}"] = gradients[key]
        tensors[f"output.{key}"] = torch.stack(steps[key]).float()
    group.add(case, tensors)
