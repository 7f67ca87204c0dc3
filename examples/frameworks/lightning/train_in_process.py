"""A Lightning module that rescales in process; without nodes it goes on from a checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bftrainer_slurm.elastic.inprocess.lightning import InProcess


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
    parser.add_argument("--save-every-s", type=float, default=60.0, help="between checkpoints")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    trainer = lightning.Trainer(
        strategy=InProcess(checkpoint=arguments.folder, checkpoint_every_s=arguments.save_every_s),
        accelerator="cpu",
        devices=1,
        max_steps=arguments.steps,
        default_root_dir=arguments.folder,
        enable_checkpointing=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Network(), DataLoader(made_data(), batch_size=32, shuffle=True))


if __name__ == "__main__":
    main()
