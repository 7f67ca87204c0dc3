"""For a Hugging Face Trainer: it reports its progress, and saves before its nodes change."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from bftrainer_slurm.elastic.saving import must_save, saved
from bftrainer_slurm.elastic.steps import step


class Elastic(TrainerCallback):
    """Add it to the trainer's ``callbacks``; outside an element it does nothing.

    When the nodes are about to change, it has the trainer save a checkpoint in its usual way, on
    all ranks after the same step, and ends the process.
    """

    def __init__(self) -> None:
        self._saving = False

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Get ready before the first step."""
        must_save()

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **others: Any,
    ) -> TrainerControl:
        """Report a step, and have the state saved if it was the last one on these nodes."""
        # auto_find_batch_size has found another one than the script gave.
        batch = state.train_batch_size or args.train_batch_size
        batch *= args.gradient_accumulation_steps
        step(samples=batch * args.world_size, number=state.global_step)
        if must_save():
            self._saving = control.should_save = True
            control.should_evaluate = False  # it may take more time than there is
        return control

    def on_save(self, args: TrainingArguments, *_: Any, **__: Any) -> None:
        """End the process if the checkpoint was made for that."""
        if self._saving:
            saved()
