"""Lightning's Trainer: ``--resume=last`` gives ``fit`` a ckpt_path."""

from __future__ import annotations

import os
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor
from torch.utils.data import DataLoader

from scripts.exactly_once.programs.recording import RATE, Work, loss_of

work = Work("resume")
given = work.given


class Module(lightning.LightningModule):  # type: ignore[misc]
    """Trains the small model, and writes down each step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = work.model
        self.numbers: list[int] = []

    def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor:
        """Return the loss."""
        work.compute()
        self.numbers = batch["numbers"].tolist()
        return loss_of(self.layer, batch)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Write down what this step trains."""
        work.step(self.global_step + 1, optimizer, self.numbers)

    def configure_optimizers(self) -> Any:
        """Return plain SGD, whose rate falls in a straight line."""
        optimizer = torch.optim.SGD(self.parameters(), lr=RATE)
        steps = int(self.trainer.estimated_stepping_batches)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


model = Module()
loader = DataLoader(work.data, batch_size=given.batch, shuffle=True)
keep = ModelCheckpoint(work.folder, every_n_train_steps=given.save_every, save_last="link")
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    strategy="ddp",
    max_epochs=given.epochs,
    callbacks=[keep],
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=work.folder,
)
trainer.fit(model, loader, ckpt_path=given.resume or None, weights_only=False)
work.end(model.layer)
