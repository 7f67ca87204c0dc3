"""Lightning as ``srun python`` starts it, for four nodes, whatever there are; counts its steps.

Writes a line for each step (time, world, step) into FOLDER/NODE.PID until it is killed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Tiny(lightning.LightningModule):
    """One layer; its loss means nothing."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)
        self._log = folder / f"{os.environ['SLURMD_NODENAME']}.{os.getpid()}"

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        with self._log.open("a") as log:
            print(time.monotonic(), self.trainer.world_size, self.trainer.global_step, file=log)
        time.sleep(0.02)  # the processors are for all nodes
        loss: Tensor = self.layer(batch[0]).mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    lightning.Trainer(
        accelerator="cpu",
        devices=1,
        num_nodes=4,
        strategy="ddp",
        max_epochs=-1,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
    ).fit(Tiny(Path(sys.argv[1])), DataLoader(TensorDataset(torch.ones(800, 8)), batch_size=8))
