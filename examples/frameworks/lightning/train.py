"""A Lightning module under torchrun: every start goes on from the last checkpoint."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bftrainer_slurm.elastic.callbacks.lightning import Elastic


class Network(lightning.LightningModule):
    """Two layers that learn on which side of a line points are."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the loss of a batch."""
        x, y = batch
        return nn.functional.cross_entropy(self.layers(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def made_data() -> TensorDataset:
    """Return points, and to which side of a made-up line they belong."""
    x = torch.randn(20_000, 64, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x[:, :8].sum(1) > 0).long())


def main() -> None:
    """Train for --steps optimizer steps, whatever nodes come and go."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("output"), help="for checkpoints")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--save-every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--save-when-told", action="store_true", help="save before nodes change")
    arguments = parser.parse_args()

    trainer = lightning.Trainer(
        accelerator="auto",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),  # as many as there are at this start
        strategy="ddp",
        max_steps=arguments.steps,
        default_root_dir=arguments.folder,
        callbacks=[
            ModelCheckpoint(
                arguments.folder, every_n_train_steps=arguments.save_every, save_last="link"
            ),
            *([Elastic(arguments.folder, batch_size=32)] if arguments.save_when_told else []),
        ],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    torch.manual_seed(0)
    loader = DataLoader(made_data(), batch_size=32, shuffle=True)
    trainer.fit(Network(), loader, ckpt_path="last", weights_only=True)


if __name__ == "__main__":
    main()
