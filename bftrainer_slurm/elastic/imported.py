"""Calls a function with a module as soon as a script has imported it. Standard library only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

Do = Callable[[ModuleType], object]


def when_imported(calls: Mapping[str, Do]) -> None:
    """Call each module's function once the module is loaded; now, where it is already."""
    for name, do in calls.items():
        if (module := sys.modules.get(name)) is not None:
            do(module)
    sys.meta_path.insert(0, _Finder(calls))


class _Finder(MetaPathFinder):
    """Finds the modules as Python does, and has them loaded by a loader of ours."""

    def __init__(self, calls: Mapping[str, Do]) -> None:
        self._calls = calls
        self._finding = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of one of the modules; None for all others."""
        if self._finding or name not in self._calls:
            return None
        self._finding = True
        try:
            spec = find_spec(name)
        finally:
            self._finding = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._calls[name])
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader, do: Do) -> None:
        self._loader, self._do = loader, do

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # what python -m asks for

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Make the module as its own loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, and call the function."""
        self._loader.exec_module(module)
        self._do(module)
