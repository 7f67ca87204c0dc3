"""What the Lightning strategy that rescales in process refuses, and takes, in one process.

Lightning is imported in ``fit``: other lanes collect this file where it is not installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from tests.frameworks.learning import Log, Rows

pytestmark = pytest.mark.frameworks


def fit(
    folder: Path, *, kind: type[Any] = object, data: dict[str, Any] | None = None, **options: Any
) -> Any:
    """Train in one process; ``kind`` is mixed into the module, ``data`` goes to DataLoader."""
    import lightning

    from bftrainer_slurm.elastic.inprocess.lightning import InProcess
    from tests.frameworks.in_lightning import Module

    own = {"max_steps": 10, "val_check_interval": 5, "check_val_every_n_epoch": None}
    trainer = lightning.Trainer(
        strategy=InProcess(),
        accelerator="cpu",
        devices=1,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        **(own | options),
    )
    bases = (Module,) if kind is object else (kind, Module)
    module = type("Mixed", bases, {})(Log(folder), seen=True)
    trainer.fit(
        module,
        DataLoader(Rows(20), **({"batch_size": 4} | (data or {}))),
        DataLoader(Rows(20), batch_size=4),
    )
    return trainer


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"accumulate_grad_batches": 2}, "accumulate_grad_batches"),
        ({"max_epochs": 2}, r"max_epochs \(give max_steps\)"),
        ({"max_steps": -1, "max_epochs": -1}, "no max_steps"),
        ({"min_steps": 3}, "min_steps, min_epochs"),
        ({"limit_train_batches": 5}, "limit_train_batches"),
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
