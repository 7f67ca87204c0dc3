"""Trains a small network on scikit-learn's handwritten digits with DDP."""

from pathlib import Path

import torch
import torch.distributed as dist
from sklearn import datasets
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from bftrainer_slurm import elastic

EPOCHS = 20
CHECKPOINT = Path("checkpoint.pt")


def save(state: dict[str, object]) -> None:
    """Write beside the old checkpoint, then rename: a node may be taken in the middle."""
    beside = CHECKPOINT.with_suffix(".new")
    torch.save(state, beside)
    beside.replace(CHECKPOINT)


def main() -> None:
    """Train for all epochs."""
    images, labels = datasets.load_digits(return_X_y=True)
    dataset = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    dist.init_process_group("gloo")
    place = {"epoch": 0, "trained": 0}  # samples of the epoch
    if CHECKPOINT.exists():
        state = torch.load(CHECKPOINT)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        place = state["place"]
    parallel = DistributedDataParallel(model)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)
    together = 32 * dist.get_world_size()  # samples of a step
    for epoch in range(place["epoch"], EPOCHS):
        sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            if epoch == place["epoch"] and number < place["trained"] // together:
                continue
            optimizer.zero_grad()
            criterion(parallel(x), y).backward()
            optimizer.step()
            told = elastic.must_save()
            if (told or number % 20 == 0) and dist.get_rank() == 0:
                now = {"epoch": epoch, "trained": (number + 1) * together}
                states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                save({**states, "place": now})
            if told:
                elastic.saved()

    if dist.get_rank() == 0:
        images, labels = dataset.tensors
        print(f"loss={criterion(model(images), labels).item():.3f}")


if __name__ == "__main__":
    main()
