"""Hugging Face's Trainer, without a checkpoint as most scripts; ``--resume=newest`` gives it one.

``--resume=true`` leaves it to Transformers to find one, from the second start on.
``--steps`` is max_steps in place of epochs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainingArguments

from scripts.exactly_once.programs.recording import RATE, Work

work = Work("resume", "steps")
given = work.given


class Model(nn.Module):
    """Takes what Transformers' models take, and remembers which samples it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = work.model
        self.numbers: list[int] = []

    def forward(self, x: Tensor, labels: Tensor, numbers: Tensor) -> dict[str, Tensor]:
        """Return the loss, as Transformers' models do."""
        self.numbers = numbers.tolist()
        work.compute()
        return {"loss": nn.functional.mse_loss(self.layer(x).squeeze(-1), labels)}


class Writes(TrainerCallback):  # type: ignore[misc]
    """Writes down each step."""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write down what this step trains."""
        work.step(state.global_step + 1, trainer.optimizer, model.numbers)


def newest(folder: Path) -> str | None:
    """Return the last whole checkpoint."""
    whole = [path for path in folder.glob("checkpoint-*") if (path / "trainer_state.json").exists()]
    return str(max(whole, key=lambda path: int(path.name[11:]))) if whole else None


model = Model()
arguments = TrainingArguments(
    str(work.folder),
    num_train_epochs=given.epochs,
    max_steps=int(given.steps or -1),
    per_device_train_batch_size=given.batch,
    learning_rate=RATE,
    save_steps=given.save_every,
    save_total_limit=3,
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    remove_unused_columns=False,
)
trainer = Trainer(model, arguments, train_dataset=work.data, callbacks=[Writes()])
last = newest(work.folder)
from_where = {"newest": last, "true": last is not None}.get(given.resume)
trainer.train(resume_from_checkpoint=from_where)
work.end(model.layer.to(torch.device("cpu")))
