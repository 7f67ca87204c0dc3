"""Checkpoints on disk, in case all nodes are lost at once: a new folder, renamed when complete.

One rank writes them by torch.distributed.checkpoint, in a thread, from a copy of the state.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load, load_state_dict
from torch.distributed.checkpoint.state_dict_saver import async_save, save_state_dict

from bftrainer_slurm.elastic.inprocess.transfer import flatten, unflatten

_KEPT = 2
_NAME = re.compile(r"step-(\d+)-of-(\d+)\Z")
_DESCRIPTION = "description"
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
        self._writing: Future[Any] | None = None

    def due(self) -> bool:
        """Return whether it is time for the next one, and the last one is written."""
        waited = self._clock() - self._last_s >= self._every_s
        return waited and (self._writing is None or self._writing.done())

    def save(self, version: Version, state: Any) -> None:
        """Copy the state now, and write it in the background.

        A failure is printed to stderr, and the training goes on without this checkpoint.
        """
        self.wait()
        self._last_s = self._clock()
        beside = self._folder / f".{version}.{os.uname().nodename}.{os.getpid()}"
        self._writing = Future()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            writing = _begin_to_write(_content(state), beside)
        except _ERRORS as error:
            self._give_up(error, beside, version)
            self._writing.set_result(None)
        else:
            writing.add_done_callback(lambda done: self._finish(done, beside, version))

    def wait(self) -> None:
        """Wait until nothing is being written."""
        if self._writing is not None:
            self._writing.result()

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
                print(f"bftrainer: cannot read {path}: {error}", file=sys.stderr)
        return None

    def _finish(self, done: Future[Any], beside: Path, version: Version) -> None:
        assert self._writing is not None
        try:
            done.result()
            target = self._folder / str(version)
            if target.exists():  # from an earlier rank 0, with the same state
                shutil.rmtree(beside)
            else:
                beside.rename(target)
            self._prune()
        except _ERRORS as error:
            self._give_up(error, beside, version)
        finally:
            self._writing.set_result(None)

    def _give_up(self, error: BaseException, beside: Path, version: Version) -> None:
        print(f"bftrainer: no checkpoint of step {version.step}: {error}", file=sys.stderr)
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


def _content(state: Any) -> dict[str, Any]:
    description, tensors = flatten(state)
    content = {_name(number): tensor for number, tensor in enumerate(tensors)}
    content[_DESCRIPTION] = torch.frombuffer(bytearray(description), dtype=torch.uint8)
    return content


def _begin_to_write(content: dict[str, Tensor], folder: Path) -> Future[Any]:
    """Copy the content now, and write it in a thread, without other ranks."""
    writer = FileSystemWriter(folder)
    if "no_dist" in signature(async_save).parameters:
        writing = async_save(content, storage_writer=writer, no_dist=True)
        assert isinstance(writing, Future)  # it would be another type with a stager of our own
        return writing
    copied = {name: tensor.to("cpu", copy=True) for name, tensor in content.items()}
    thread = ThreadPoolExecutor(1)
    try:
        return thread.submit(save_state_dict, copied, writer, no_dist=True)
    finally:
        thread.shutdown(wait=False)


def _read(path: Path) -> Any:
    stored = FileSystemReader(path).read_metadata().state_dict_metadata
    content: dict[str, Any] = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in stored.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    if "no_dist" in signature(load).parameters:
        load(content, storage_reader=FileSystemReader(path), no_dist=True)
    else:
        load_state_dict(content, FileSystemReader(path), no_dist=True)
    description: Tensor = content.pop(_DESCRIPTION)
    tensors = [content[_name(number)] for number in range(len(content))]
    return unflatten(description.numpy().tobytes(), tensors)


def _versions(folder: Path) -> list[Version]:
    """Return the versions in a folder, the oldest first."""
    if not folder.is_dir():
        return []
    matches = (_NAME.match(path.name) for path in folder.iterdir())
    return sorted(Version(int(match[2]), int(match[1])) for match in matches if match)


def _name(number: int) -> str:
    return f"tensor-{number}"
