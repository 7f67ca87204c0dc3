"""Scripts that nobody has changed go on where their training was, on another number of ranks.

One module for each framework, which only a script that imports the framework loads. Samples are the
unit: what frameworks count in steps is read in steps of the ranks that there are. A user turns all
of it off by ``BFTRAINER_RESUME=no``. A fault here never ends a script: it falls back to what the
framework does, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TypeVar

from bftrainer_slurm.elastic.imported import when_imported
from bftrainer_slurm.elastic.log import say

Done = TypeVar("Done")

VARIABLE = "BFTRAINER_RESUME"
RATES = "rates"
MODULES = {
    "transformers.trainer": "huggingface",
    "lightning.pytorch.trainer.trainer": "lightning",
    "pytorch_lightning.trainer.trainer": "lightning",
    "torch.optim.lr_scheduler": RATES,
    "torchdata.stateful_dataloader.stateful_dataloader": "torchdata",
}
# Modules of ours that read this script's place in samples; with RATES its learning rate follows.
helping: set[str] = set()


def install(environment: Mapping[str, str]) -> None:
    """Prepare a training process of an element for what its script may import."""
    if environment.get(VARIABLE) != "no":
        calls = {name: partial(_change, ours=ours) for name, ours in MODULES.items()}
        when_imported(calls)


def _change(module: ModuleType, ours: str) -> None:
    guarded(lambda: import_module(f"{__name__}.{ours}").change(module), f"{ours} is left as it is")


def counts_samples() -> bool:
    """Return whether this script's place is read in samples, so that no change loses any."""
    return bool(helping - {RATES})


def guarded(do: Callable[[], Done], without: str, otherwise: Done | None = None) -> Done | None:
    """Do something that the script can do ``without``, and say so then; return the result."""
    try:
        return do()
    except Exception as error:
        say(f"{without}: {error!r}")
        return otherwise
