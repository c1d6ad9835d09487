"""Trains LeNet with PyTorch: the yardstick for `meshwork train` on the same data with the same options.

    python3 bench/oracle/lenet_torch.py --data fashion-mnist --epochs 3 --batch 64 --lr 0.05 --seed 1

The data is either a folder with the four IDX files of MNIST or Fashion-MNIST (`train-images-idx3-ubyte.gz` and so
on, compressed or not), scikit-learn's `digits.csv.gz`, or a name: `fashion-mnist` (where Debian's package
`dataset-fashion-mnist` puts it) or `digits` (the file in this repository). Pixels are scaled to 0..1 and nothing else;
digits are scaled up from 8x8 to 28x28, and the last fifth of them, in file order, is the test set.

The model has PyTorch's default initialisation. One line of JSON is printed per epoch: the mean training loss over
the samples of the epoch, and the accuracy on the test set after it. Runs with PyTorch 1.13 and 2.x.
"""

import argparse
import csv
import gzip
import io
import json
import math
import struct
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

NAMES = {
    "fashion-mnist": Path("/usr/share/datasets/fashion-mnist"),
    "digits": Path(__file__).resolve().parents[2] / "crates" / "data" / "assets" / "digits.csv.gz",
}
OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


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


def main():
    options = parse_options()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    train_images, train_labels, test_images, test_labels = load(options.data)

    model = LeNet()
    optimizer = OPTIMIZERS[options.optimizer](model.parameters(), lr=options.lr)
    for epoch in range(1, options.epochs + 1):
        loss = train_epoch(model, optimizer, train_images, train_labels, options.batch)
        accuracy = evaluate(model, test_images, test_labels)
        print(json.dumps({"epoch": epoch, "train_loss": loss, "test_accuracy": accuracy}), flush=True)


def parse_options():
    parser = argparse.ArgumentParser(description="Trains LeNet with PyTorch.")
    parser.add_argument("--data", default="fashion-mnist", metavar="NAME|PATH", help=f"{', '.join(NAMES)}, or a path")
    parser.add_argument("--epochs", type=int, default=1, metavar="N")
    parser.add_argument("--batch", type=int, default=64, metavar="B")
    parser.add_argument("--lr", type=float, default=0.05, metavar="X")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="0: as many as PyTorch chooses")
    return parser.parse_args()


def train_epoch(model, optimizer, images, labels, batch_size):
    """One pass over the shuffled samples, the last batch as short as it comes; returns the mean loss."""
    model.train()
    total = 0.0
    for indices in torch.randperm(len(labels)).split(batch_size):
        loss = F.cross_entropy(model(images[indices]), labels[indices])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(indices)
    return total / len(labels)


@torch.no_grad()
def evaluate(model, images, labels, batch_size=1000):
    """The share of samples whose largest logit is that of their label."""
    model.eval()
    correct = 0
    for start in range(0, len(labels), batch_size):
        batch = slice(start, start + batch_size)
        correct += (model(images[batch]).argmax(1) == labels[batch]).sum().item()
    return correct / len(labels)


def load(data):
    """Training images [N, 1, 28, 28] and labels [N], then those of the test set."""
    path = NAMES.get(data, Path(data))
    if path.is_file():
        return load_digits(path)
    if not path.is_dir():
        sys.exit(f"no data at {path}: --data takes {', '.join(NAMES)}, a folder of IDX files, or a digits.csv.gz")
    sets = []
    for prefix in ("train", "t10k"):
        sets.append(read_idx(path, f"{prefix}-images-idx3-ubyte").float().unsqueeze(1) / 255)
        sets.append(read_idx(path, f"{prefix}-labels-idx1-ubyte").long())
    return sets


def read_idx(folder, name):
    """The bytes of an IDX file: two zero bytes, a type, the number of dimensions, their sizes, the values."""
    path = folder / f"{name}.gz"
    if path.exists():
        content = gzip.decompress(path.read_bytes())
    elif (folder / name).exists():
        content = (folder / name).read_bytes()
    else:
        sys.exit(f"neither {name}.gz nor {name} in {folder}")
    zero, kind, rank = struct.unpack(">HBB", content[:4])
    if (zero, kind) != (0, 8):
        sys.exit(f"{name} in {folder} is not an IDX file of bytes")
    shape = struct.unpack(f">{rank}I", content[4 : 4 + 4 * rank])
    if len(content) != 4 + 4 * rank + math.prod(shape):
        sys.exit(f"{name} in {folder} is cut short, or too long: its header says {shape}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=4 + 4 * rank).reshape(shape)


def load_digits(path):
    text = io.StringIO(gzip.decompress(path.read_bytes()).decode())
    table = torch.tensor([[float(value) for value in row] for row in csv.reader(text)])
    images = table[:, :64].reshape(-1, 1, 8, 8) / 16
    images = F.interpolate(images, size=(28, 28), mode="bilinear", align_corners=False)
    labels = table[:, 64].long()
    num_train = len(labels) - len(labels) // 5
    return images[:num_train], labels[:num_train], images[num_train:], labels[num_train:]


if __name__ == "__main__":
    main()
