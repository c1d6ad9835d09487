"""Short trainings on scikit-learn's digits: a LeNet and an MLP, 20 steps of SGD, in f32 and in f64.

Nothing large is stored: the initial weights follow from a formula (`initial_weight`), the data from the file of
digits. Stored are the losses, the logits of the first batch after training, and sums over the weights and over what
training changed in them.
"""

import csv
import gzip
import io

import torch
import torch.nn.functional as F
from group import Group
from torch import nn

STEPS = 20
BATCH_SIZE = 16


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 3)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, images):
        x = F.avg_pool2d(F.relu(self.conv1(images)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 256)
        self.fc2 = nn.Linear(256, 10)

    def forward(self, images):
        return self.fc2(F.relu(self.fc1(images.flatten(1))))


def make(digits):
    group = Group("training")
    images, labels = load_digits(digits, STEPS * BATCH_SIZE)
    case = {"name": "digits", "op": "digits", "args": {"samples": len(labels), "size": [28, 28]}}
    sums = images.double().sum((1, 2, 3))
    group.add(case, {"images": images[:3], "sums": sums, "labels": labels})

    train(group, "lenet20", LeNet, images, labels, lr=0.05)
    train(group, "mlp20", Mlp, images, labels, lr=0.1)
    # At the gentle rate above the LeNet barely moves in 20 steps; this one leaves its initial weights far behind.
    train(group, "lenet20_momentum", LeNet, images, labels, lr=0.1, momentum=0.9)
    return group


def load_digits(path, count):
    """The first `count` digits in file order: images [count, 1, 28, 28] in f32, labels [count].

    A row of the file holds the 64 pixels of an 8x8 image, values 0 to 16, and the label. The images are scaled up
    in f64 and then rounded.
    """
    text = io.StringIO(gzip.decompress(path.read_bytes()).decode())
    rows = [[float(value) for value in row] for row in csv.reader(text)][:count]
    table = torch.tensor(rows, dtype=torch.float64)
    pixels = table[:, :64].reshape(-1, 1, 8, 8) / 16
    images = F.interpolate(pixels, size=(28, 28), mode="bilinear", align_corners=False)
    return images.float(), table[:, 64].long()


def fnv1a(text):
    """The 32-bit FNV-1a hash of the UTF-8 bytes of the text."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 % 2**32
    return value


def initial_weight(name, shape, fan_in):
    """Pseudo-random weights that any language can compute to the bit.

    w_i = (((i * 2654435761 + fnv1a(name)) mod 2^32) / 2^32 - 0.5) * 2 * bound with bound = 1 / sqrt(fan_in), for the
    flat index i, evaluated in f64 from left to right, then rounded to f32.
    """
    index = torch.arange(torch.Size(shape).numel(), dtype=torch.int64)
    hashed = (index * 2654435761 + fnv1a(name)) % 2**32
    bound = 1 / torch.tensor(float(fan_in), dtype=torch.float64).sqrt()
    return ((hashed.double() / 2**32 - 0.5) * 2 * bound).float().reshape(shape)


def initialize(model):
    """Sets all parameters; returns their fan-ins. A bias has the fan-in of the weight beside it."""
    fan_ins = {}
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            weight = parameters[name.rsplit(".", 1)[0] + ".weight"]
            fan_ins[name] = weight[0].numel()
            parameter.copy_(initial_weight(name, parameter.shape, fan_ins[name]))
    return fan_ins


def train(group, name, build, images, labels, lr, momentum=0.0):
    parameters = []
    tensors = {}
    for dtype, suffix in ((torch.float32, ""), (torch.float64, "_f64")):
        model = build()
        fan_ins = initialize(model)
        model.to(dtype)
        initial = {key: value.detach().clone() for key, value in model.named_parameters()}
        if dtype == torch.float32:
            for key, value in initial.items():
                parameters.append({"name": key, "shape": list(value.shape), "fan_in": fan_ins[key]})
                tensors[f"initial.{key}"] = value.flatten()[:5]
                tensors[f"initial_sums.{key}"] = sums(value)

        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
        losses = []
        for step in range(STEPS):
            batch = slice(step * BATCH_SIZE, (step + 1) * BATCH_SIZE)
            loss = F.cross_entropy(model(images[batch].to(dtype)), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())

        tensors[f"losses{suffix}"] = torch.stack(losses)
        with torch.no_grad():
            tensors[f"logits{suffix}"] = model(images[:BATCH_SIZE].to(dtype))
        for key, value in model.named_parameters():
            tensors[f"final_sums{suffix}.{key}"] = sums(value)
            tensors[f"change_sums{suffix}.{key}"] = sums(value.double() - initial[key].double())

    args = {
        "model": build.__name__.lower(),
        "steps": STEPS,
        "batch_size": BATCH_SIZE,
        "optimizer": "sgd",
        "lr": lr,
        "momentum": momentum,
    }
    group.add({"name": name, "op": "train", "args": args, "parameters": parameters}, tensors)


def sums(parameter):
    """[sum, sum of squares], both in f64."""
    value = parameter.detach().double()
    return torch.stack([value.sum(), (value * value).sum()])
