"""Writes the golden files: what PyTorch says about every operation, optimizer, schedule and two short trainings.

    python3 tests/golden/make.py                 write all groups beside this script
    python3 tests/golden/make.py conv pool       only these groups
    python3 tests/golden/make.py --check         write nothing; fail if a file is not what would be written

See README.md for the format.
"""

import argparse
import importlib
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
DIGITS = HERE.parents[1] / "crates" / "data" / "assets" / "digits.csv.gz"
GROUPS = [
    "elementwise",
    "reduce",
    "matmul",
    "conv",
    "pool",
    "loss",
    "norm",
    "index",
    "shape",
    "dtype",
    "training",
    "optim",
    "schedule",
]


def main():
    parser = argparse.ArgumentParser(description="Writes the golden files.")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"which groups (default: all): {', '.join(GROUPS)}")
    parser.add_argument("--check", action="store_true", help="compare with the files on disk instead of writing them")
    parser.add_argument("--digits", type=Path, default=DIGITS, help="scikit-learn's digits.csv.gz (group training)")
    options = parser.parse_args()
    for name in options.groups:
        if name not in GROUPS:
            parser.error(f"no group {name!r}; the groups are: {', '.join(GROUPS)}")
    names = options.groups or GROUPS
    if "training" in names and not options.digits.is_file():
        parser.error(f"the group training needs scikit-learn's digits.csv.gz, not found at {options.digits}")

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    total = 0
    stale = []
    for name in names:
        torch.manual_seed(0)
        module = importlib.import_module(f"cases.{name}")
        group = module.make(options.digits) if name == "training" else module.make()
        content = group.serialize()
        path = HERE / f"{name}.safetensors"
        if not options.check:
            path.write_bytes(content)
        elif not path.exists() or path.read_bytes() != content:
            stale.append(path.name)
        total += len(content)
        print(f"{path.name:26} {len(group.cases):4} cases {len(content):9,} bytes")
    print(f"{'total':37} {total:9,} bytes")
    if stale:
        sys.exit(f"not what would be written: {', '.join(stale)}")


if __name__ == "__main__":
    main()
