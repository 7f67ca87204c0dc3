"""What the Lightning strategy that rescales in process refuses, and takes, in one process.

Lightning is imported in functions: other lanes collect this file where it is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, WeightedRandomSampler

from tests.elastic.alone import as_new_process
from tests.frameworks.learning import Log, Rows

pytestmark = pytest.mark.frameworks


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    with as_new_process():
        yield


def made(folder: Path, **options: Any) -> Any:
    import lightning

    from bftrainer_slurm.elastic.inprocess.lightning import InProcess

    own = {"max_steps": 10, "val_check_interval": 5, "check_val_every_n_epoch": None}
    return lightning.Trainer(
        strategy=InProcess(),
        accelerator="cpu",
        devices=1,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        **(own | options),
    )


def module(folder: Path, methods: dict[str, Any] | None = None) -> Any:
    from tests.frameworks.in_lightning import Module

    return type("Mine", (Module,), methods or {})(Log(folder), seen=True)


def fit(
    folder: Path,
    *,
    methods: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Train in one process, and return Lightning's Trainer; ``data`` goes to DataLoader."""
    trainer = made(folder, **options)
    rows = DataLoader(Rows(20), **({"batch_size": 4} | (data or {})))
    trainer.fit(module(folder, methods), rows, DataLoader(Rows(20), batch_size=4))
    return trainer


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"accumulate_grad_batches": 2}, "accumulate_grad_batches"),
        ({"max_epochs": 2}, r"max_epochs \(give max_steps\)"),
        ({"max_steps": -1, "max_epochs": -1}, "no max_steps"),
        ({"min_steps": 3}, "min_steps, min_epochs"),
        ({"limit_train_batches": 5}, "limit_train_batches"),
        ({"limit_train_batches": 1}, "limit_train_batches"),
        ({"val_check_interval": 1.0, "check_val_every_n_epoch": 1}, "val_check_interval"),
    ],
)
def test_what_does_not_train_in_process_is_refused_by_its_name(
    tmp_path: Path, options: dict[str, Any], name: str
) -> None:
    with pytest.raises(ValueError, match=f"not in process: {name}"):
        fit(tmp_path, **options)


def test_a_second_fit_is_refused(tmp_path: Path) -> None:
    trainer = fit(tmp_path)
    with pytest.raises(RuntimeError, match="called once in a process"):
        trainer.fit(trainer.lightning_module, DataLoader(Rows(20), batch_size=4))


@pytest.mark.parametrize(
    "data", [{"drop_last": True}, {"sampler": WeightedRandomSampler([1.0] * 20, 20)}]
)
def test_a_loader_that_chooses_its_samples_is_refused(tmp_path: Path, data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no sampler of its own and no drop_last"):
        fit(tmp_path, data=data)


def test_several_loaders_are_refused(tmp_path: Path) -> None:
    trainer = made(tmp_path)
    rows = DataLoader(Rows(20), batch_size=4)
    with pytest.raises(ValueError, match="the training data is one"):
        trainer.fit(module(tmp_path), [rows, rows], rows)


def test_a_hook_that_would_get_no_batch_is_refused(tmp_path: Path) -> None:
    def hook(self: object, batch: Any, dataloader_idx: int) -> Any:
        return batch

    with pytest.raises(ValueError, match="not in process: on_before_batch_transfer"):
        fit(tmp_path, methods={"on_before_batch_transfer": hook})


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_batches_come_in_the_precision_of_the_weights(tmp_path: Path, precision: str) -> None:
    assert fit(tmp_path, precision=precision).global_step == 10


def test_data_workers_begin_with_the_scripts_function(tmp_path: Path) -> None:
    def begin(number: int) -> None:
        (tmp_path / f"begun.{number}").touch()

    fit(tmp_path, data={"num_workers": 1, "worker_init_fn": begin})
    assert (tmp_path / "begun.0").exists()


def test_a_rate_that_follows_a_ranks_own_metric_is_refused(tmp_path: Path) -> None:
    def configure_optimizers(self: Any) -> dict[str, Any]:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        config = {"scheduler": scheduler, "monitor": "missed", "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": config}

    with pytest.raises(ValueError, match="not in process: ReduceLROnPlateau"):
        fit(tmp_path, methods={"configure_optimizers": configure_optimizers})


def test_an_average_that_newcomers_would_not_get_is_refused(tmp_path: Path) -> None:
    from lightning.pytorch.callbacks import StochasticWeightAveraging

    average = StochasticWeightAveraging(0.1, swa_epoch_start=1)
    copy = {"__deepcopy__": lambda self, _: self}  # its log cannot be copied
    with pytest.raises(ValueError, match="not in process: averages of weights"):
        fit(tmp_path, methods=copy, callbacks=[average])


def test_a_checkpoint_that_is_saved_when_told_leaves_no_mark_of_its_first_name(
    tmp_path: Path,
) -> None:
    from bftrainer_slurm.elastic.callbacks.lightning import Elastic
    from bftrainer_slurm.elastic.resuming.marks import mark

    class Saves:
        is_global_zero, world_size = True, 1

        def save_checkpoint(self, path: Path) -> None:
            path.write_text("a state")
            mark(path, 1)  # as where ``resuming`` has changed Lightning's

    saves: Any = Saves()
    Elastic(tmp_path)._save(saves)
    assert {one.name for one in tmp_path.iterdir()} == {"last.ckpt", "last.ckpt.bftrainer.json"}
