"""Checkpoints on disk, in case all nodes are lost at once: a new folder, renamed when complete.

One rank writes them by torch.distributed.checkpoint, in a thread, from a copy of the state.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load, load_state_dict
from torch.distributed.checkpoint.state_dict_saver import save, save_state_dict

from bftrainer_slurm.elastic.inprocess.transfer import flatten, unflatten
from bftrainer_slurm.elastic.log import say

_KEPT = 2
_NAME = re.compile(r"step-(\d+)-of-(\d+)\Z")
_DESCRIPTION = "description"
# Without other ranks; torch 2.6 can do that only by names that later versions call deprecated.
_SAVE: Any = save if "no_dist" in signature(save).parameters else save_state_dict
_LOAD: Any = load if "no_dist" in signature(load).parameters else load_state_dict
_ERRORS = (
    Exception,
    CheckpointException,
)  # CheckpointException, for any kind of failure, is not an Exception


class Version(NamedTuple):
    """The version of a state; a larger one is further in the training.

    The step alone does not say it: a node that was cut off may train on alone, while the others
    have agreed on another state in a later generation.
    """

    lineage: int  # number of the generation in which its ranks agreed on it
    step: int

    def __str__(self) -> str:
        return f"step-{self.step}-of-{self.lineage}"


class Checkpoints:
    """The checkpoints in a folder that all nodes see, one in ``every_s`` seconds at most."""

    def __init__(
        self, folder: Path, every_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._every_s = every_s
        self._clock = clock
        self._last_s = clock()
        self._writing: Thread | None = None

    def due(self) -> bool:
        """Return whether it is time for the next one, and the last one is written."""
        waited = self._clock() - self._last_s >= self._every_s
        return waited and (self._writing is None or not self._writing.is_alive())

    def save(self, version: Version, state: Any) -> None:
        """Copy the state now, and write it in the background.

        A failure is printed to stderr, and the training goes on without this checkpoint.
        """
        self.wait()
        self._last_s = self._clock()
        with self._or_without(version):
            writing = Thread(target=self._write, args=(version, _copied(state)))
            writing.start()
            self._writing = writing  # only now: one that never started cannot be waited for

    def wait(self) -> None:
        """Wait until nothing is being written."""
        if self._writing is not None:
            self._writing.join()

    def newest(self, after: Version | None = None) -> Any | None:
        """Return the state of the newest readable checkpoint, or None if there is none.

        Only those of later states than ``after`` count. ``after`` None: we have no state yet.

        Raises:
            Exception, CheckpointException: ``after`` is None and none of them can be read. A new
                training would remove them.
        """
        found = [one for one in _versions(self._folder) if after is None or one > after]
        for version in reversed(found):
            path = self._folder / str(version)
            try:
                return _read(path)
            except _ERRORS as error:
                if after is None and version == found[0]:
                    raise
                say(f"cannot read {path}: {error}")
        return None

    def _write(self, version: Version, content: dict[str, Tensor]) -> None:
        with self._or_without(version) as beside:
            self._folder.mkdir(parents=True, exist_ok=True)
            _SAVE(content, storage_writer=FileSystemWriter(beside), no_dist=True)
            target = self._folder / str(version)
            if target.exists():  # from an earlier rank 0, with the same state
                shutil.rmtree(beside)
            else:
                beside.rename(target)
            self._prune()

    @contextlib.contextmanager
    def _or_without(self, version: Version) -> Iterator[Path]:
        """Give the folder to write into; if that fails, remove it, and say so."""
        beside = self._folder / f".{version}.{os.uname().nodename}.{os.getpid()}"
        try:
            yield beside
        except _ERRORS as error:
            say(f"no checkpoint of step {version.step}: {error}")
            shutil.rmtree(beside, ignore_errors=True)

    def _prune(self) -> None:
        for version in _versions(self._folder)[:-_KEPT]:
            hidden = self._folder / f".{version}.old"
            # A half-removed one must not look like a checkpoint; another process may be faster.
            with contextlib.suppress(FileNotFoundError):
                (self._folder / str(version)).rename(hidden)
            shutil.rmtree(hidden, ignore_errors=True)
        for beside in self._folder.glob(".step-*"):  # incomplete ones of processes that are gone
            if time.time() - beside.stat().st_mtime > max(600.0, 2 * self._every_s):
                shutil.rmtree(beside, ignore_errors=True)


def _copied(state: Any) -> dict[str, Tensor]:
    description, tensors = flatten(state)
    content = {_name(number): one.to("cpu", copy=True) for number, one in enumerate(tensors)}
    content[_DESCRIPTION] = description
    return content


def _read(path: Path) -> Any:
    stored = FileSystemReader(path).read_metadata().state_dict_metadata
    content: dict[str, Any] = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in stored.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    _LOAD(content, storage_reader=FileSystemReader(path), no_dist=True)
    description: Tensor = content.pop(_DESCRIPTION)
    return unflatten(description, [content[_name(number)] for number in range(len(content))])


def _versions(folder: Path) -> list[Version]:
    """Return the versions in a folder, the oldest first."""
    if not folder.is_dir():
        return []
    matches = (_NAME.match(path.name) for path in folder.iterdir())
    return sorted(Version(int(match[2]), int(match[1])) for match in matches if match)


def _name(number: int) -> str:
    return f"tensor-{number}"
