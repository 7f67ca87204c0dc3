"""Trains one trial of the search: a small network on scikit-learn's handwritten digits.

It saves before its nodes change. Its last act is to write the test accuracy into --folder.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn import datasets
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from bftrainer_slurm import elastic

TEST_IMAGES = 360
BATCH = 32  # images a step and rank


def save(path: Path, value: object) -> None:
    """Write a file at once or not at all: a reclaim may come in the middle."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    torch.save(value, beside)
    beside.replace(path)


def main() -> None:
    """Train for --epochs, whatever nodes come and go."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoint and result")
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

    dist.init_process_group("gloo")
    rank, together = dist.get_rank(), BATCH * dist.get_world_size()  # samples of a step
    checkpoint = arguments.folder / "checkpoint.pt"
    begin = trained = 0  # epochs, and samples of the next one
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin, trained = state["place"]
    parallel = DistributedDataParallel(model)
    dataset = TensorDataset(images[TEST_IMAGES:], truth[TEST_IMAGES:])
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
    for epoch in range(begin, arguments.epochs):
        sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            if number < trained // together:
                continue
            optimizer.zero_grad()
            criterion(parallel(x), y).backward()
            optimizer.step()
            told = elastic.must_save()
            if rank == 0 and (told or number == 0):
                states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                save(checkpoint, {**states, "place": (epoch, (number + 1) * together)})
            if told:
                elastic.saved()
        trained = 0

    dist.barrier()  # nobody leaves while another rank still needs it
    if rank == 0:
        with torch.no_grad():
            right = (model(images[:TEST_IMAGES]).argmax(1) == truth[:TEST_IMAGES]).float().mean()
        beside = arguments.folder / "result.json.new"
        beside.write_text(json.dumps({"accuracy": right.item()}))
        beside.replace(arguments.folder / "result.json")


if __name__ == "__main__":
    main()
