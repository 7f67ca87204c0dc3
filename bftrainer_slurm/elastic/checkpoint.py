"""Checkpoints on disk, for the loss of all nodes at once: written beside, then renamed.

torch.distributed.checkpoint writes them in a thread, from a copy of the state, by one rank.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from bftrainer_slurm.elastic.state import flatten, unflatten

_KEPT = 2
_NAME = re.compile(r"step-(\d+)\Z")
_DESCRIPTION = "description"
_ERRORS = (
    Exception,
    CheckpointException,
)  # the latter, of any kind of failure, is none of the former


class Checkpoints:
    """The checkpoints in a folder that all nodes see, one each ``every_s`` seconds at most."""

    def __init__(
        self, folder: Path, every_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._every_s = every_s
        self._clock = clock
        self._last_s = clock()
        self._writing: Future[Any] | None = None

    def due(self) -> bool:
        """Return whether it is time for the next one, and the one before is written."""
        waited = self._clock() - self._last_s >= self._every_s
        return waited and (self._writing is None or self._writing.done())

    def save(self, step: int, state: Any) -> None:
        """Copy the state now, and write it in the background.

        What goes wrong there is said on stderr: the training goes on without this checkpoint.
        """
        self.wait()
        self._last_s = self._clock()
        beside = self._folder / f".step-{step}.{os.uname().nodename}.{os.getpid()}"
        self._writing = Future()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            writing = async_save(
                _content(state), storage_writer=FileSystemWriter(beside), no_dist=True
            )
        except _ERRORS as error:
            self._give_up(error, beside, step)
            self._writing.set_result(None)
        else:
            assert isinstance(writing, Future)  # with our own stager it would be another type
            writing.add_done_callback(lambda done: self._finish(done, beside, step))

    def wait(self) -> None:
        """Wait until nothing is being written."""
        if self._writing is not None:
            self._writing.result()

    def newest(self, after: int = -1) -> Any | None:
        """Return the state of the newest checkpoint that can be read, or None without any.

        Only those of later steps than ``after`` count; -1: there is no other state.

        Raises:
            Exception, CheckpointException: none of them can be; to begin anew would lose them.
        """
        found = {step: path for step, path in _numbered(self._folder).items() if step > after}
        for step in sorted(found, reverse=True):
            try:
                return _read(found[step])
            except _ERRORS as error:
                if after < 0 and step == min(found):
                    raise
                print(f"bftrainer: cannot read {found[step]}: {error}", file=sys.stderr)
        return None

    def _finish(self, done: Future[Any], beside: Path, step: int) -> None:
        assert self._writing is not None
        try:
            done.result()
            target = self._folder / f"step-{step}"
            if target.exists():  # of a rank 0 before this one, at the same step
                shutil.rmtree(beside)
            else:
                beside.rename(target)
            self._prune()
        except _ERRORS as error:
            self._give_up(error, beside, step)
        finally:
            self._writing.set_result(None)

    def _give_up(self, error: BaseException, beside: Path, step: int) -> None:
        print(f"bftrainer: no checkpoint of step {step}: {error}", file=sys.stderr)
        shutil.rmtree(beside, ignore_errors=True)

    def _prune(self) -> None:
        found = _numbered(self._folder)
        for step in sorted(found)[:-_KEPT]:
            hidden = self._folder / f".step-{step}.old"
            found[step].rename(hidden)  # a half removed one must not look like a checkpoint
            shutil.rmtree(hidden, ignore_errors=True)
        for beside in self._folder.glob(".step-*"):  # torn ones of processes that are gone
            if time.time() - beside.stat().st_mtime > max(600.0, 2 * self._every_s):
                shutil.rmtree(beside, ignore_errors=True)


def _content(state: Any) -> dict[str, Any]:
    description, tensors = flatten(state)
    content = {_name(number): tensor for number, tensor in enumerate(tensors)}
    content[_DESCRIPTION] = torch.frombuffer(bytearray(description), dtype=torch.uint8)
    return content


def _read(path: Path) -> Any:
    stored = FileSystemReader(path).read_metadata().state_dict_metadata
    content: dict[str, Any] = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in stored.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    load(content, storage_reader=FileSystemReader(path), no_dist=True)
    description: Tensor = content.pop(_DESCRIPTION)
    tensors = [content[_name(number)] for number in range(len(content))]
    return unflatten(description.numpy().tobytes(), tensors)


def _numbered(folder: Path) -> dict[int, Path]:
    if not folder.is_dir():
        return {}
    matches = ((path, _NAME.match(path.name)) for path in folder.iterdir())
    return {int(match[1]): path for path, match in matches if match}


def _name(number: int) -> str:
    return f"tensor-{number}"
