"""Trains a small residual network on images of CIFAR's shape with plain DDP under torchrun.

The images are scikit-learn's handwritten digits, enlarged to 3 x 32 x 32, so nothing is downloaded.
The script knows nothing of BFTrainer: each (re)start goes on from the newest checkpoint.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn import datasets
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate
from torch.nn.parallel import DistributedDataParallel

BATCH = 16  # images a step and rank
TEST_IMAGES = 360


class Block(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.GroupNorm(4, channels),  # not of a batch, whose size changes
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.GroupNorm(4, channels),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the images with what the convolutions add to them."""
        return torch.relu(images + self.body(images))


def network() -> nn.Module:
    """Return a network for ten classes with some 29,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        Block(16),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        Block(32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def load_images() -> tuple[Tensor, Tensor]:
    """Return all images and their labels, in an order that is always the same."""
    pixels, labels = datasets.load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    small = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    images = interpolate(small, size=(32, 32), mode="bilinear").expand(-1, 3, -1, -1)
    return images[order], torch.tensor(labels)[order]


def save(path: Path, value: object) -> None:
    """Write a file at once or not at all: a reclaim may come in the middle."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    torch.save(value, beside)
    beside.replace(path)


def main() -> None:
    """Train until --steps are done, whatever nodes come and go."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="for the checkpoint")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--save-every-s", type=float, default=10.0)
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    checkpoint = arguments.folder / "checkpoint.pt"
    state = {"step": 0}
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    # Ranks may have read two different checkpoints; rank 0's counts.
    agreed = torch.tensor([state["step"]])
    dist.broadcast(agreed, src=0)
    parallel = DistributedDataParallel(model)  # sends rank 0's weights to all

    images, labels = load_images()
    tests, images = images[:TEST_IMAGES], images[TEST_IMAGES:]
    truth, labels = labels[:TEST_IMAGES], labels[TEST_IMAGES:]
    saved_s = time.monotonic()
    for step in range(int(agreed), arguments.steps):
        # Drawn alike on all ranks, so that no two of them take the same images.
        drawn = torch.randint(
            len(images), (world, BATCH), generator=torch.Generator().manual_seed(step)
        )
        optimizer.zero_grad()
        cross_entropy(parallel(images[drawn[rank]]), labels[drawn[rank]]).backward()
        optimizer.step()
        last = step + 1 == arguments.steps
        if rank == 0 and (last or time.monotonic() - saved_s > arguments.save_every_s):
            saved_s = time.monotonic()
            # A node that hung and comes back may write what the others have long passed.
            if not checkpoint.exists() or torch.load(checkpoint)["step"] <= step:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                save(checkpoint, state | {"step": step + 1})
            with torch.no_grad():
                right = (model(tests).argmax(1) == truth).float().mean().item()
            print(f"step={step + 1} world={world} test accuracy={right:.3f}", flush=True)
    dist.barrier()  # nobody leaves while another rank still needs it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
