"""A script with a Lightning module that rescales in process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping
from torch import Tensor
from torch.utils.data import DataLoader

from bftrainer_slurm.elastic.inprocess.lightning import InProcess
from tests.frameworks.learning import Log, Model, Rows, lose_at


class Module(lightning.LightningModule):
    """Writes down what it computes."""

    def __init__(self, log: Log, seen: bool) -> None:
        super().__init__()
        self.model = Model()
        self._log_of_steps = log
        self._seen = seen  # the loss is a mean over labels, and samples have more or fewer

    def training_step(self, batch: dict[str, Tensor], number: int) -> Tensor:
        strategy = self.trainer.strategy
        weight, epoch = strategy.elastic._step.weight, strategy.loader.epoch
        self._log_of_steps.tried(strategy.elastic, weight, batch["numbers"], epoch)
        if not self._seen:
            batch["labels"] = batch["labels"].clamp(min=0)
        return self.model(**batch)["loss"]

    def validation_step(self, batch: dict[str, Tensor], number: int) -> None:
        self.log("missed", self.model(**batch)["loss"])

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class Watch(Callback):
    """Writes down what is done; stops when the file is there, as one rank alone finds it."""

    def __init__(self, log: Log, stop: str | None, pause_s: float) -> None:
        self._log, self._stop, self._pause_s = log, stop, pause_s
        self.validations = 0

    def state_dict(self) -> dict[str, Any]:
        return {"validations": self.validations}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.validations = state_dict["validations"]

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        self._log.done(trainer.strategy.elastic, trainer.global_step)
        assert trainer.global_step == trainer.strategy.elastic.cursor.step + 1
        assert trainer.is_global_zero == (trainer.strategy.elastic.rank == 0)
        time.sleep(self._pause_s)
        if self._stop is not None and trainer.is_global_zero and Path(self._stop).exists():
            trainer.should_stop = True

    def on_validation_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        self.validations += not trainer.sanity_checking


def main(folder: Path, given: dict[str, Any]) -> None:
    options: dict[str, Any] = {
        "size": 200,
        "batch_size": 4,
        "batch": "local",
        "steps": 1_000_000,
        "pause_s": 0.005,
        "stop": None,
        "save_s": 1000.0,
        "seed_weights": False,
        "seen": True,
        "lose_at": None,
    } | given
    torch.set_num_threads(1)
    log = Log(folder)
    strategy = InProcess(
        batch=options["batch"],
        checkpoint=folder / "output",
        checkpoint_every_s=options["save_s"],
        seed=3,
    )
    torch.manual_seed(0 if options["seed_weights"] else os.getpid())
    module = Module(log, options["seen"])
    watch = Watch(log, options["stop"], options["pause_s"])
    trainer = lightning.Trainer(
        strategy=strategy,
        accelerator="cpu",
        devices=1,
        max_steps=options["steps"],
        gradient_clip_val=0.05,  # less than it is, so that it counts
        callbacks=[watch, EarlyStopping("missed", patience=1_000_000)],
        val_check_interval=20,
        check_val_every_n_epoch=None,
        default_root_dir=folder,
        enable_checkpointing=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    if options["lose_at"]:
        lose_at(lambda: strategy.elastic, options["lose_at"])
    trainer.fit(
        module,
        DataLoader(Rows(options["size"]), batch_size=options["batch_size"], shuffle=True),
        DataLoader(Rows(10), batch_size=5),
    )
    where = torch.nn.ParameterList()  # an object with this state
    counts = trainer.fit_loop.state_dict()["epoch_loop.batch_progress"]["total"]
    told = {"step": trainer.global_step, "done": counts["completed"], "seen": watch.validations}
    where.state_dict = lambda: told  # type: ignore[method-assign]
    log.end(strategy.elastic, module, *trainer.optimizers, where)
