"""A group of golden cases: draws inputs, asks PyTorch for outputs and gradients, collects tensors and JSON.

Floating-point cases are evaluated in f64 on the stored (already rounded) inputs, and the results are rounded once to
the dtype of the case. The golden values therefore carry no rounding error of PyTorch's own summation order, and
do not depend on the vector units of the machine that made them. PyTorch's result in f32 is computed as well and
must be close to the f64 one: a case where it is not would be too ill-conditioned to test anything.
"""

import json
import zlib

import torch
from container import serialize


class Group:
    def __init__(self, name):
        self.name = name
        self.cases = []
        self.tensors = {}

    def serialize(self):
        metadata = {"torch": torch.__version__, "cases": json.dumps(self.cases, separators=(",", ":"))}
        return serialize(self.tensors, metadata)

    def add(self, case, tensors):
        """Adds a case as it is: `case` is its JSON, `tensors` are stored under `<case name>:<tensor name>`."""
        assert all(case["name"] != other["name"] for other in self.cases), case["name"]
        self.cases.append(case)
        for name, tensor in tensors.items():
            self.tensors[f"{case['name']}:{name}"] = tensor.detach().clone()

    def case(self, op, variant, function, inputs, args=None, grad=None, gradgrad=False, dtype=torch.float32):
        """Adds the case `op/variant`.

        `inputs` maps names to recipes (see sample.py) or tensors, in the order of the operation's operands;
        `function(**inputs, **args)` returns one tensor, a list of them, or a map from names to tensors.
        `grad` names the inputs to differentiate by (default: all that are floating-point), `dtype` is the dtype in
        which floating-point tensors are stored; None: evaluate in the inputs' own dtypes and round nothing.
        """
        args = args or {}
        name = f"{op}/{variant}"
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))

        def stored(tensor):
            return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor

        def draw(recipe):
            return stored(recipe if isinstance(recipe, torch.Tensor) else recipe(generator))

        drawn = {key: draw(recipe) for key, recipe in inputs.items()}
        if grad is None:
            grad = [key for key, tensor in drawn.items() if tensor.is_floating_point()]

        compute = None if dtype is None else torch.float64
        outputs, _ = evaluate(function, drawn, args, grad, compute)
        cotangents = {
            f"grad_{key}": torch.randn(output.shape, generator=generator, dtype=torch.float64).to(dtype or output.dtype)
            for key, output in outputs.items()
            if output.requires_grad
        }
        if not cotangents:
            grad = []
        directions = {}
        if gradgrad:
            for key in grad:
                random = torch.randn(drawn[key].shape, generator=generator, dtype=torch.float64)
                directions[f"v.{key}"] = stored(random)

        results = differentiate(function, drawn, args, grad, cotangents, directions, compute)
        if dtype == torch.float32:
            single = differentiate(function, drawn, args, grad, cotangents, directions, torch.float32)
            check_condition(name, results, single)

        case = {
            "name": name,
            "op": op,
            "args": args,
            "inputs": list(drawn),
            "outputs": list(outputs),
            "grad_inputs": grad,
            "gradgrad": gradgrad,
        }
        self.add(case, {**drawn, **cotangents, **directions, **{key: stored(value) for key, value in results.items()}})


def evaluate(function, inputs, args, grad, compute):
    """The named outputs of the function, and the leaves they were computed from (`grad`: differentiable)."""
    leaves = {}
    for key, tensor in inputs.items():
        if compute is not None and tensor.is_floating_point():
            tensor = tensor.to(compute)
        leaves[key] = tensor.detach().clone().requires_grad_(key in grad)
    outputs = function(**leaves, **args)
    if isinstance(outputs, torch.Tensor):
        outputs = {"output": outputs}
    elif not isinstance(outputs, dict):
        outputs = {f"output.{i}": output for i, output in enumerate(outputs)}
    return outputs, leaves


def differentiate(function, inputs, args, grad, cotangents, directions, compute):
    """Outputs, `grad.<input>` and, if directions are given, `gradgrad.<input>`, all in the dtype `compute`."""
    outputs, leaves = evaluate(function, inputs, args, grad, compute)
    results = dict(outputs)
    if grad:
        sources = [leaves[key] for key in grad]
        gradients = gradient_or_zero(
            [outputs[key.removeprefix("grad_")] for key in cotangents],
            sources,
            [cotangent.to(outputs[key.removeprefix("grad_")].dtype) for key, cotangent in cotangents.items()],
            create_graph=bool(directions),
        )
        results.update({f"grad.{key}": gradient for key, gradient in zip(grad, gradients)})
        if directions:
            total = sum((g * directions[f"v.{key}"].to(compute)).sum() for key, g in zip(grad, gradients))
            seconds = gradient_or_zero([total], sources, None)
            results.update({f"gradgrad.{key}": second for key, second in zip(grad, seconds)})
    return results


def gradient_or_zero(outputs, inputs, cotangents, create_graph=False):
    gradients = torch.autograd.grad(outputs, inputs, cotangents, create_graph=create_graph, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, gradients)]


def check_condition(name, double, single):
    for key, expected in double.items():
        if expected.is_floating_point():
            expected = expected.float()
        if not torch.allclose(single[key].float(), expected.float(), rtol=1e-4, atol=1e-5, equal_nan=True):
            error = (single[key].float() - expected.float()).abs().max().item()
            raise SystemExit(f"{name}: PyTorch's own f32 result for {key} is {error:e} away from the f64 result")
