"""Lightning's Trainer and Fabric: they count nodes as the script says, not as there are.

Seen with lightning 2.6. Their connectors take ``num_nodes`` and check it against Slurm or
torchrun, and end the script where it does not fit. With other versions nothing is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from inspect import signature
from types import ModuleType
from typing import Any

import torch

_CONNECTORS = {
    f"{package}.{module}": name
    for packages, module, name in (
        (
            ("lightning.pytorch", "pytorch_lightning"),
            "trainer.connectors.accelerator_connector",
            "_AcceleratorConnector",
        ),
        (("lightning.fabric", "lightning_fabric"), "connector", "_Connector"),
    )
    for package in packages
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
    for name in _CONNECTORS:
        if (module := sys.modules.get(name)) is not None:
            _wrap(module, do)
    sys.meta_path.insert(0, _Finder(do))


def _wrap(module: ModuleType, do: Before) -> None:
    connector = getattr(module, _CONNECTORS[module.__name__], None)
    if connector is None:
        return
    init = connector.__init__
    parameters = signature(init)

    @wraps(init)
    def init_after(*given: Any, **named: Any) -> None:
        bound = parameters.bind(*given, **named)
        bound.apply_defaults()
        do(bound.arguments)
        init(*bound.args, **bound.kwargs)

    connector.__init__ = init_after


class _Finder(MetaPathFinder):
    """Finds the connectors as Python does, and wraps them once they are loaded."""

    def __init__(self, do: Before) -> None:
        self._do = do
        self._finding = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a connector's module, which is wrapped after it is run."""
        if self._finding or name not in _CONNECTORS:
            return None
        self._finding = True
        try:
            spec = find_spec(name)
        finally:
            self._finding = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._do)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader, do: Before) -> None:
        self._loader, self._do = loader, do

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Make the module as its own loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, and wrap what is in it."""
        self._loader.exec_module(module)
        _wrap(module, self._do)
