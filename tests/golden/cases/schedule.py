"""Learning-rate schedules: `output` [31] (f64) holds the rate of steps 0 to 30 (fewer if the schedule ends earlier)."""

import math
import warnings

import torch
from group import Group
from torch.optim import lr_scheduler

LENGTH = 31
LR = 0.2


def make():
    group = Group("schedule")

    def add(op, variant, build, **args):
        parameter = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([parameter], lr=LR)
        scheduler = build(optimizer, **args)
        rates = [optimizer.param_groups[0]["lr"]]
        while len(rates) < min(LENGTH, args.get("total_steps", LENGTH)):
            optimizer.step()
            with warnings.catch_warnings():  # SequentialLR itself calls what it warns of
                warnings.simplefilter("ignore", UserWarning)
                scheduler.step()
            rates.append(optimizer.param_groups[0]["lr"])
        case = {"name": f"{op}/{variant}", "op": op, "args": {"lr": LR, **args}, "steps": len(rates)}
        group.add(case, {"output": torch.tensor(rates, dtype=torch.float64)})
        return rates

    add("constant_lr", "plain", lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1.0))
    add("step_lr", "every_7", lr_scheduler.StepLR, step_size=7, gamma=0.1)
    add("step_lr", "every_1", lr_scheduler.StepLR, step_size=1, gamma=0.9)
    add("cosine_annealing_lr", "whole", lr_scheduler.CosineAnnealingLR, T_max=30, eta_min=0.0)
    add("cosine_annealing_lr", "eta_min", lr_scheduler.CosineAnnealingLR, T_max=30, eta_min=0.01)
    # Beyond T_max the rate rises again: it has a period of 2 T_max.
    add("cosine_annealing_lr", "beyond", lr_scheduler.CosineAnnealingLR, T_max=11, eta_min=0.02)
    add("linear_lr", "up", lr_scheduler.LinearLR, start_factor=1 / 3, end_factor=1.0, total_iters=5)
    add("linear_lr", "down", lr_scheduler.LinearLR, start_factor=1.0, end_factor=0.05, total_iters=30)

    for warmup_steps, start_factor, eta_min, variant in ((5, 0.1, 0.0, "5"), (7, 0.25, 0.01, "7_eta_min")):
        rates = add(
            "warmup_cosine_lr",
            variant,
            warmup_cosine,
            warmup_steps=warmup_steps,
            start_factor=start_factor,
            total_steps=LENGTH,
            eta_min=eta_min,
        )
        for step, rate in enumerate(rates):
            expected = warmup_cosine_rate(step, warmup_steps, start_factor, LENGTH, eta_min)
            assert math.isclose(rate, expected, rel_tol=1e-12, abs_tol=1e-15), (variant, step, rate, expected)

    for strategy in ("cos", "linear"):
        args = {"max_lr": 0.5, "pct_start": 0.3, "div_factor": 25.0, "final_div_factor": 1e4}
        for total_steps in (LENGTH, 17):
            add(
                "one_cycle_lr",
                f"{strategy}_{total_steps}",
                lambda optimizer, **args: lr_scheduler.OneCycleLR(optimizer, **args, cycle_momentum=False),
                **args,
                total_steps=total_steps,
                anneal_strategy=strategy,
            )
    return group


def warmup_cosine(optimizer, warmup_steps, start_factor, total_steps, eta_min):
    warmup = lr_scheduler.LinearLR(optimizer, start_factor=start_factor, end_factor=1.0, total_iters=warmup_steps)
    decay = lr_scheduler.CosineAnnealingLR(optimizer, T_max=total_steps - warmup_steps, eta_min=eta_min)
    return lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[warmup_steps])


def warmup_cosine_rate(step, warmup_steps, start_factor, total_steps, eta_min):
    """The formula of `warmup_cosine`, which the rates of PyTorch's schedulers must follow."""
    if step < warmup_steps:
        return LR * (start_factor + (1 - start_factor) * step / warmup_steps)
    progress = (step - warmup_steps) / (total_steps - warmup_steps)
    return eta_min + (LR - eta_min) * (1 + math.cos(math.pi * progress)) / 2
