"""A script with a Hugging Face Trainer that rescales in process."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_callback import ExportableState

from bftrainer_slurm.elastic.inprocess.huggingface import Trainer, TrainingArguments
from tests.frameworks.learning import Log, Model, Rows, lose_at


class Watch(TrainerCallback, ExportableState):
    """Writes down what is done; stops when the file is there, as one rank alone finds it."""

    def __init__(self, trainer: Trainer, log: Log, stop: str | None, pause_s: float) -> None:
        self._trainer, self._log = trainer, log
        self._stop, self._pause_s = stop, pause_s
        self.epochs = 0

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"epochs": self.epochs}}

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._log.done(self._trainer.elastic, state.global_step)
        assert state.global_step == self._trainer.elastic.cursor.step
        rank = self._trainer.elastic.rank
        assert (args.process_index, state.is_world_process_zero) == (rank, rank == 0)
        time.sleep(self._pause_s)
        if self._stop is not None and rank == 0 and Path(self._stop).exists():
            control.should_training_stop = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.epochs += 1


class Noisy(Rows):
    """Samples with noise, as a language model's masked words."""

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        sample = super().__getitem__(number)
        return sample | {"x": sample["x"] + torch.randn(sample["x"].shape)}


class Watched(Trainer):
    """Writes down what it computes."""

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], **others: Any) -> Any:
        if model.training:
            weight, epoch = self.elastic._step.weight, self._batches._loader.epoch
            self.log_of_steps.tried(self.elastic, weight, inputs["numbers"], epoch)
        return super().compute_loss(model, inputs, **others)


def newest(folder: Path) -> str | None:
    whole = [path for path in folder.glob("checkpoint-*") if (path / "trainer_state.json").exists()]
    return str(max(whole, key=lambda path: int(path.name[11:]))) if whole else None


def main(folder: Path, given: dict[str, Any]) -> None:
    options: dict[str, Any] = {
        "size": 200,
        "batch_size": 4,
        "batch": "local",
        "steps": 1_000_000,
        "epochs": 3.0,
        "pause_s": 0.005,
        "stop": None,
        "save_steps": 1_000_000,
        "seed_weights": False,
        "rate": None,
        "workers": 0,
        "lose_at": None,
    } | given
    torch.set_num_threads(1)
    log = Log(folder)
    arguments = TrainingArguments(
        str(folder / "output"),
        max_steps=options["steps"],
        num_train_epochs=options["epochs"],
        per_device_train_batch_size=options["batch_size"],
        learning_rate=0.01,
        max_grad_norm=0.05,  # less than it is, so that it counts
        warmup_steps=10,
        save_steps=options["save_steps"],
        logging_steps=5,
        eval_strategy="steps" if options["steps"] > 0 else "epoch",
        eval_steps=20,
        report_to="none",
        remove_unused_columns=False,
        dataloader_num_workers=options["workers"],
        seed=3,
    )
    torch.manual_seed(0 if options["seed_weights"] else os.getpid())
    trainer = Watched(
        Model(),
        arguments,
        train_dataset=Rows(options["size"]),
        eval_dataset=Noisy(10),
        batch=options["batch"],
        rate=options["rate"],
    )
    trainer.log_of_steps = log
    if options["lose_at"]:
        lose_at(lambda: trainer.elastic, options["lose_at"])
    trainer.add_callback(Watch(trainer, log, options["stop"], options["pause_s"]))
    output = trainer.train(resume_from_checkpoint=newest(folder / "output"))
    assert output.metrics["train_loss"] == output.training_loss
    trainer.save_model()
    state = trainer._shared.state_dict()
    shared = torch.nn.Identity()  # an object with this state
    shared.state_dict = lambda: {"json": without_times(state["json"])}  # type: ignore[method-assign]
    log.end(
        trainer.elastic, trainer.model, trainer.optimizer.optimizer, trainer.lr_scheduler, shared
    )


def without_times(text: str) -> str:
    """Leave out what each rank measures for itself, and what only who saves looks up."""
    state, *others = json.loads(text)
    del state["stateful_callbacks"]
    for logged in state["log_history"]:
        for name in [one for one in logged if one.endswith(("_runtime", "_per_second"))]:
            del logged[name]
    return json.dumps([state, *others])
