"""Operations with indices: embedding, gather, scatter_add, index_select, one_hot."""

import torch
import torch.nn.functional as F
from group import Group
from sample import integers, normal


def make():
    group = Group("index")
    embeddings(group)
    gathers(group)
    scatters(group)
    selections(group)
    one_hots(group)
    return group


def embeddings(group):
    def embedding(weight, indices, padding_idx):
        return F.embedding(indices, weight, padding_idx)

    shapes = {"vector": (7,), "matrix": (3, 5), "single": (), "empty": (0,), "many": (67,)}
    for variant, shape in shapes.items():
        inputs = {"weight": normal(11, 3), "indices": integers(0, 11, *shape)}
        group.case("embedding", variant, embedding, inputs, {"padding_idx": None})
    # The row of the padding index is read, but gets no gradient.
    inputs = {"weight": normal(5, 3), "indices": torch.tensor([[0, 2, 4, 2], [2, 1, 1, 3]])}
    group.case("embedding", "padding_idx", embedding, inputs, {"padding_idx": 2})


def gathers(group):
    def gather(x, index, dim):
        return x.gather(dim, index)

    shapes = {
        "first": (0, (5, 3), (7, 3)),
        "last": (1, (5, 3), (5, 7)),
        "middle": (1, (3, 5, 2), (3, 4, 2)),
        "negative": (-1, (3, 5), (3, 1)),
        # Other dims of the index may be shorter than those of the input.
        "smaller": (1, (5, 7), (3, 4)),
    }
    for variant, (dim, x, index) in shapes.items():
        inputs = {"x": normal(*x), "index": integers(0, x[dim], *index)}
        group.case("gather", variant, gather, inputs, {"dim": dim})


def scatters(group):
    def scatter_add(x, index, source, dim):
        return x.scatter_add(dim, index, source)

    shapes = {
        "first": (0, (5, 3), (7, 3), (7, 3)),
        "last": (1, (3, 5), (3, 13), (3, 13)),
        "middle": (1, (3, 5, 2), (3, 4, 2), (3, 4, 2)),
        "vector": (0, (3,), (131,), (131,)),
        # The other dims of index and source may be shorter than those of the input.
        "smaller": (1, (5, 7), (3, 4), (3, 4)),
    }
    for variant, (dim, x, index, source) in shapes.items():
        inputs = {"x": normal(*x), "index": integers(0, x[dim], *index), "source": normal(*source)}
        group.case("scatter_add", variant, scatter_add, inputs, {"dim": dim})


def selections(group):
    def index_select(x, index, dim):
        return x.index_select(dim, index)

    for variant, dim, count in (("first", 0, 7), ("middle", 1, 3), ("last", -1, 11), ("none", 1, 0)):
        shape = (3, 5, 7)
        inputs = {"x": normal(*shape), "index": integers(0, shape[dim], count)}
        group.case("index_select", variant, index_select, inputs, {"dim": dim})


def one_hots(group):
    def one_hot(index, num_classes):
        return F.one_hot(index, num_classes)

    for variant, shape in (("vector", (7,)), ("matrix", (3, 5)), ("single", ())):
        group.case("one_hot", variant, one_hot, {"index": integers(0, 5, *shape)}, {"num_classes": 5})
