"""For a Lightning trainer: it reports its progress, and saves before its nodes change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from bftrainer_slurm.elastic.resuming.marks import rename
from bftrainer_slurm.elastic.saving import must_save, saved
from bftrainer_slurm.elastic.steps import step


class Elastic(Callback):
    """Add it to the trainer's ``callbacks``; outside an element it does nothing.

    When the nodes are about to change, all ranks save after the same step, to ``last.ckpt`` in
    ``folder``, and end. ``trainer.fit(..., ckpt_path="last")`` goes on from it if ``folder`` is a
    ModelCheckpoint's ``dirpath``. It replaces Lightning's handler of SIGTERM, which broadcasts
    while the ranks may do something else, and hangs.

    Args:
        folder: a folder that all nodes see.
        batch_size: samples in a batch of one rank; None: as its DataLoader says.
    """

    def __init__(self, folder: str | os.PathLike[str], batch_size: int | None = None) -> None:
        self.folder = Path(folder)
        self._batch_size = batch_size
        self._batches = self._told = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Get ready before the first step, and after Lightning has set its handlers."""
        self._told = trainer.global_step
        must_save()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *others: Any, **more: Any
    ) -> None:
        """Report a step, and save if it was the last one on these nodes."""
        self._batches += 1
        if trainer.global_step == self._told:
            return  # gradients are still being accumulated
        self._told = trainer.global_step
        batch = self._batch_size or getattr(trainer.train_dataloader, "batch_size", None) or 0
        samples = batch * self._batches * trainer.world_size
        step(samples or None, self._told)
        self._batches = 0
        if must_save():
            self._save(trainer)
            saved()

    def _save(self, trainer: Trainer) -> None:
        """Write a new file and rename it, as the node may be taken in the middle."""
        beside = self.folder / f".step-{self._told}.ckpt"
        trainer.save_checkpoint(beside)
        if trainer.is_global_zero:
            rename(beside, self.folder / "last.ckpt")
