"""Trains one trial of the search: a small network on scikit-learn's handwritten digits.

It rescales in process. Its last act is to write the test accuracy into --folder.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from sklearn import datasets
from torch import nn
from torch.utils.data import TensorDataset

from bftrainer_slurm import elastic

TEST_IMAGES = 360


def main() -> None:
    """Train for --epochs, whatever nodes come and go."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoints and the result")
    parser.add_argument("--rate", type=float, default=1e-3, help="Adam's learning rate")
    parser.add_argument("--width", type=int, default=64, help="of the hidden layer")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()

    pixels, labels = datasets.load_digits(return_X_y=True)
    images, truth = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, arguments.width), nn.ReLU(), nn.Linear(arguments.width, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.rate)
    criterion = nn.CrossEntropyLoss()
    trainer = elastic.Trainer(model, optimizer, checkpoint=arguments.folder / "checkpoints")
    dataset = TensorDataset(images[TEST_IMAGES:], truth[TEST_IMAGES:])
    for x, y in trainer.loader(dataset, batch_size=32, epochs=arguments.epochs):
        with trainer.step():
            optimizer.zero_grad()
            criterion(trainer.ddp(x), y).backward()
            optimizer.step()

    if trainer.rank == 0:
        with torch.no_grad():
            right = (model(images[:TEST_IMAGES]).argmax(1) == truth[:TEST_IMAGES]).float().mean()
        beside = arguments.folder / "result.json.new"
        beside.write_text(json.dumps({"accuracy": right.item()}))
        beside.replace(arguments.folder / "result.json")


if __name__ == "__main__":
    main()
