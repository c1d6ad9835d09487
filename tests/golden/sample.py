"""Recipes for random inputs: each returns a function of a generator that draws one tensor.

Floating-point recipes draw in f64; the case rounds to its own dtype. Recipes for kinked functions keep the values
away from the kinks, so that a rounding difference cannot pick another branch.
"""

import torch


def normal(*shape, scale=1.0):
    return lambda generator: torch.randn(shape, generator=generator, dtype=torch.float64) * scale


def uniform(low, high, *shape):
    return lambda generator: low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def away(*shape, points=(0.0,), gap=0.1, low=-3.0, high=3.0):
    """Uniform in [low, high), but nowhere nearer than `gap` to one of `points`."""

    def draw(generator):
        values = uniform(low, high, *shape)(generator)
        while True:
            near = torch.zeros(shape, dtype=torch.bool)
            for point in points:
                near |= (values - point).abs() < gap
            if not near.any():
                return values
            values = torch.where(near, uniform(low, high, *shape)(generator), values)

    return draw


def distinct(*shape, spacing=0.1, offset=0.0):
    """Every value another multiple of `spacing`, shifted by `offset`, in random order: no ties, no near ties."""

    def draw(generator):
        count = torch.Size(shape).numel()
        order = torch.randperm(count, generator=generator)
        return ((order - count // 2).double() * spacing + offset).reshape(shape)

    return draw


def integers(low, high, *shape, dtype=torch.int64):
    """Uniform integers in [low, high)."""
    return lambda generator: torch.randint(low, high, shape, generator=generator).to(dtype)


def whole(low, high, *shape):
    """Floating-point values that are whole numbers in [low, high): for comparisons, where ties are the point."""
    return lambda generator: torch.randint(low, high, shape, generator=generator).double()


def booleans(*shape):
    return integers(0, 2, *shape, dtype=torch.bool)
