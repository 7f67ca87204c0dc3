"""Trains a small network on scikit-learn's handwritten digits with DDP."""

import torch
import torch.distributed as dist
from sklearn import datasets
from torch import nn
from torch.utils.data import TensorDataset

from bftrainer_slurm import elastic

EPOCHS = 20


def main() -> None:
    """Train for all epochs."""
    images, labels = datasets.load_digits(return_X_y=True)
    dataset = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    trainer = elastic.Trainer(model, optimizer)
    loader = trainer.loader(dataset, batch_size=32, epochs=EPOCHS)
    for x, y in loader:
        with trainer.step():
            optimizer.zero_grad()
            loss = criterion(trainer.ddp(x), y)
            loss.backward()
            optimizer.step()

    if dist.get_rank() == 0:
        print(f"loss={loss.item():.3f}")


if __name__ == "__main__":
    main()
