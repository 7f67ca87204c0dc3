"""Trains a small network on scikit-learn's handwritten digits with DDP under torchrun.

It survives any change of its nodes: its state is in their memory, and now and then on disk, and
every (re)start goes on from there, at the sample where it stopped.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bftrainer_slurm.elastic import Snapshot, step

BATCH = 32  # samples a step and rank


def load_digits(cache: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training images and labels, test images and labels; kept in a file for restarts."""
    if not cache.exists():
        from sklearn import datasets

        images, labels = datasets.load_digits(return_X_y=True)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        images = torch.tensor(images, dtype=torch.float32)[order] / 16
        labels = torch.tensor(labels)[order]
        save(cache, (images[360:], labels[360:], images[:360], labels[:360]))
    return torch.load(cache)


def save(path: Path, value: object) -> None:
    """Write a file at once or not at all: a reclaim may come in the middle."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    torch.save(value, beside)
    beside.replace(path)


def batches(seen: int, size: int, rank: int, world: int) -> Tensor:
    """Return this rank's part of the step that begins at sample ``seen`` of the whole training."""
    epoch, begin = divmod(seen, size)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch))
    return order[begin : begin + BATCH * world][rank::world]


def main() -> None:
    """Train until --samples are seen, whatever nodes come and go."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoint and data")
    parser.add_argument("--samples", type=int, default=2_000_000, help="samples to train in all")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    checkpoint = arguments.folder / "checkpoint.pt"
    images, labels, test_images, test_labels = load_digits(arguments.folder / "digits.pt")

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    snapshot = Snapshot(checkpoint, disk_every_s=1.0, model=model, optimizer=optimizer)
    seen = snapshot.load() or 0
    parallel = DistributedDataParallel(model)  # sends rank 0's weights to all
    told_s = time.monotonic()

    while seen < arguments.samples:
        mine = batches(seen, len(labels), rank, world)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(parallel(images[mine]), labels[mine], reduction="sum")
        (loss / BATCH).backward()
        optimizer.step()
        samples = min(BATCH * world, len(labels) - seen % len(labels))
        seen += samples
        step(samples=samples)
        snapshot.save(seen, now=seen >= arguments.samples)
        if rank == 0 and (time.monotonic() - told_s > 1 or seen >= arguments.samples):
            told_s = time.monotonic()
            with torch.no_grad():
                right = (model(test_images).argmax(1) == test_labels).float().mean().item()
            print(f"seen={seen} world={world} test accuracy={right:.3f}", flush=True)
    dist.barrier()  # nobody leaves while another rank still needs it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
