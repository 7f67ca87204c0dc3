"""Lightning's Trainer and Fabric: they count nodes as the script says, not as there are.

Seen with lightning 2.6. Their connectors take ``num_nodes`` and check it against Slurm or
torchrun, and end the script where it does not fit. With other versions nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch

from bftrainer_slurm.elastic.around import before
from bftrainer_slurm.elastic.imported import when_imported

_CONNECTORS = {
    "lightning.pytorch.trainer.connectors.accelerator_connector": "_AcceleratorConnector",
    "pytorch_lightning.trainer.connectors.accelerator_connector": "_AcceleratorConnector",
    "lightning.fabric.connector": "_Connector",
    "lightning_fabric.connector": "_Connector",
}
Before = Callable[[MutableMapping[str, Any]], object]


def fit_nodes(environment: Mapping[str, str]) -> None:
    """Have each Trainer and Fabric of a torchrun's worker count the nodes that there are."""

    def count(arguments: MutableMapping[str, Any]) -> None:
        if "num_nodes" in arguments and "WORLD_SIZE" in environment:
            nodes = int(environment["WORLD_SIZE"]) // int(environment["LOCAL_WORLD_SIZE"])
            arguments["num_nodes"] = nodes

    before_connectors(count)


def processes(arguments: Mapping[str, Any]) -> int:
    """Return how many processes a Trainer or Fabric wants on each node, by its ``devices``."""
    devices = arguments.get("devices", "auto")
    if isinstance(devices, str) and devices.strip("-").isdecimal():
        devices = int(devices)
    if isinstance(devices, str) and "," in devices:
        devices = [one for one in devices.split(",") if one.strip()]
    if isinstance(devices, Sequence) and not isinstance(devices, str):
        return max(1, len(devices))
    if isinstance(devices, int) and devices >= 0:
        return max(1, devices)
    if str(arguments.get("accelerator", "auto")) in ("auto", "gpu", "cuda"):  # all that there are
        return max(1, torch.cuda.device_count())
    return 1


def before_connectors(do: Before) -> None:
    """Call ``do`` with the arguments of each Trainer's and Fabric's connector, to change them."""
    when_imported({name: partial(_wrap, do=do) for name in _CONNECTORS})


def _wrap(module: ModuleType, do: Before) -> None:
    if (connector := getattr(module, _CONNECTORS[module.__name__], None)) is not None:
        before(connector, "__init__", do)
