"""What the Hugging Face Trainer that rescales in process refuses, and takes, in one process.

Transformers is imported in the tests: other lanes collect this file where it is not installed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch.utils.data import DataLoader

from tests.elastic.alone import as_new_process
from tests.frameworks.learning import Model, Rows

pytestmark = pytest.mark.frameworks


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    with as_new_process():
        yield


def trainer(
    folder: Path, *, methods: dict[str, Any] | None = None, callbacks: Any = None, **options: Any
) -> Any:
    from bftrainer_slurm.elastic.inprocess.huggingface import Trainer, TrainingArguments

    own = {"report_to": "none", "max_steps": 10, "remove_unused_columns": False, "use_cpu": True}
    arguments = TrainingArguments(str(folder), **(own | options))
    kind: Any = type("Subclass", (Trainer,), methods or {})
    return kind(Model(), arguments, train_dataset=Rows(20), callbacks=callbacks)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gradient_accumulation_steps", 2),
        ("auto_find_batch_size", True),
        ("dataloader_drop_last", True),
        ("save_on_each_node", True),
        ("data_seed", 7),
        ("enable_jit_checkpoint", True),  # a reclaimed rank would stop all of them
        ("include_num_input_tokens_seen", "all"),
    ],
)
def test_what_does_not_train_in_process_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # Transformers' for SIGTERM
    with pytest.raises(ValueError, match=f"not in process: {name}"):
        trainer(tmp_path, **{name: value})


def test_transformers_own_arguments_are_refused(tmp_path: Path) -> None:
    import transformers

    from bftrainer_slurm.elastic.inprocess.huggingface import Trainer

    with pytest.raises(TypeError, match=r"inprocess\.huggingface\.TrainingArguments"):
        Trainer(Model(), transformers.TrainingArguments(str(tmp_path)), train_dataset=Rows(20))


def test_epochs_need_a_batch_size_that_does_not_depend_on_the_nodes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give max_steps, or batch='global'"):
        trainer(tmp_path, max_steps=-1).train()


@pytest.mark.parametrize("name", ["get_train_dataloader", "_get_train_sampler"])
def test_a_loader_or_sampler_of_the_scripts_own_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}\(\) is not yours .*: give train_dataset"):
        trainer(tmp_path, methods={name: lambda *_: DataLoader(Rows(20))}).train()


def test_a_callback_that_ends_an_epoch_early_is_refused(tmp_path: Path) -> None:
    from transformers import TrainerCallback

    class Ends(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            control.should_epoch_stop = True

    with pytest.raises(ValueError, match="should_training_stop is heard"):
        trainer(tmp_path, callbacks=[Ends()]).train()


def test_an_optimizer_that_a_subclass_makes_trains(tmp_path: Path) -> None:
    def create_optimizer(self: Any, *_: Any) -> torch.optim.Optimizer:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        return self.optimizer

    assert trainer(tmp_path, methods={"create_optimizer": create_optimizer}).train()[0] == 10


def test_weights_and_biases_begins_a_run_before_it_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.integrations import WandbCallback

    wandb = MagicMock(run=None)
    wandb.init.side_effect = lambda **_: setattr(wandb, "run", MagicMock())
    wandb.log.side_effect = lambda *_: wandb.run.id  # of None: an error, as W&B's
    for name in ("wandb", "wandb.sdk", "wandb.sdk.lib", "wandb.sdk.lib.config_util"):
        monkeypatch.setitem(sys.modules, name, wandb)
    available = "transformers.integrations.integration_utils.is_wandb_available"
    monkeypatch.setattr(available, lambda: True)
    trainer(tmp_path, callbacks=[WandbCallback()], logging_steps=5).train()
    assert wandb.init.call_count == 1
    assert wandb.log.call_count >= 2
