"""Matrix products: vectors, matrices, batches, broadcast batches, transposed operands; the linear layer."""

import torch
import torch.nn.functional as F
from group import Group
from sample import normal


def matmul(a, b, transpose_a, transpose_b):
    return torch.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b)


SHAPES = {
    "vector_vector": ((7,), (7,)),
    "matrix_vector": ((5, 7), (7,)),
    "vector_matrix": ((7,), (7, 3)),
    "matrix": ((3, 5), (5, 7)),
    "matrix_one": ((1, 1), (1, 1)),
    "row_column": ((1, 13), (13, 1)),
    "column_row": ((13, 1), (1, 11)),
    "tiles": ((19, 37), (37, 35)),
    "long": ((5, 517), (517, 3)),
    "batch": ((3, 5, 7), (3, 7, 2)),
    "batch_2d": ((2, 3, 5, 7), (2, 3, 7, 3)),
    "broadcast_right": ((3, 5, 7), (7, 2)),
    "broadcast_left": ((5, 7), (3, 7, 2)),
    "broadcast_one": ((2, 1, 3, 5), (3, 5, 2)),
    "broadcast_both": ((2, 1, 3, 5), (1, 3, 5, 2)),
    "batch_vector": ((2, 3, 5), (5,)),
    "vector_batch": ((5,), (2, 5, 3)),
    "empty_rows": ((0, 5), (5, 3)),
    "empty_contraction": ((3, 0), (0, 5)),
}


def make():
    group = Group("matmul")
    plain = {"transpose_a": False, "transpose_b": False}
    for variant, (a, b) in SHAPES.items():
        gradgrad = variant in ("matrix", "broadcast_one")
        group.case("matmul", variant, matmul, {"a": normal(*a), "b": normal(*b)}, plain, gradgrad=gradgrad)

    transposed = {
        "transpose_a": ((7, 5), (7, 3)),
        "transpose_b": ((5, 7), (3, 7)),
        "transpose_a_transpose_b": ((7, 5), (3, 7)),
        "batch_transpose_a": ((3, 7, 5), (3, 7, 2)),
        "batch_transpose_b": ((3, 5, 7), (3, 2, 7)),
        "tiles_transpose_a": ((37, 19), (37, 21)),
        "tiles_transpose_b": ((19, 37), (21, 37)),
    }
    for variant, (a, b) in transposed.items():
        args = {"transpose_a": "transpose_a" in variant, "transpose_b": "transpose_b" in variant}
        group.case("matmul", variant, matmul, {"a": normal(*a), "b": normal(*b)}, args)

    def linear(x, weight, bias=None):
        return F.linear(x, weight, bias)

    group.case("linear", "plain", linear, {"x": normal(5, 7), "weight": normal(3, 7), "bias": normal(3)})
    group.case("linear", "no_bias", linear, {"x": normal(5, 7), "weight": normal(3, 7)})
    group.case("linear", "sequence", linear, {"x": normal(2, 3, 13), "weight": normal(11, 13), "bias": normal(11)})
    return group
