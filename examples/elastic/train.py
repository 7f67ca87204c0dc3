"""Trains a small network on scikit-learn's handwritten digits with DDP."""

import torch
import torch.distributed as dist
from sklearn import datasets
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from bftrainer_slurm import elastic

EPOCHS = 20


def main() -> None:
    """Train for all epochs."""
    images, labels = datasets.load_digits(return_X_y=True)
    dataset = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    dist.init_process_group("gloo")
    snapshot = elastic.Snapshot("checkpoint.pt", model=model, optimizer=optimizer)
    place = snapshot.load() or {"epoch": 0, "trained": 0}  # samples of the epoch
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
            snapshot.save({"epoch": epoch, "trained": (number + 1) * together})
            if elastic.must_save():
                elastic.saved()

    snapshot.save({"epoch": EPOCHS, "trained": 0}, now=True)
    if dist.get_rank() == 0:
        images, labels = dataset.tensors
        print(f"loss={criterion(model(images), labels).item():.3f}")


if __name__ == "__main__":
    main()
