"""A small file says that a checkpoint is complete, of which training, and how many ranks made it.

It is written last, and names all files. So no checkpoint is taken that was cut off while it was
written or removed, nor one of another training: of an earlier one into the same folder, of another
step of the batch script, or of another ``fit()``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bftrainer_slurm.elastic.place import step_and_script

_NAME = "bftrainer.json"
_LONGEST = 2**20  # bytes


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of a stream: a data set without a length."""

    samples: int
    way: str  # if a stream is read in another one, the order of samples is another


@dataclass(frozen=True, slots=True)
class Mark:
    """What is known of a complete checkpoint."""

    training: str  # see ``Trainings.begin``
    ranks: int
    stream: Read | None = None  # what was read of it in the present epoch, if that is known
    files: tuple[str, ...] = ()  # that are in its folder, from there


class Trainings:
    """Numbers the trainings that a script makes one after the other in a process: 1, 2, ..."""

    def __init__(self) -> None:
        self._begun = 0

    def begin(self, model: Any, data: Any, environment: Mapping[str, str] = os.environ) -> str:
        """Return what tells the next training from all others; it is the same after a restart.

        These are the trainer, the step of its batch script (the arguments, where no srun has
        started it), the training's number in the process, the shapes of ``model``, and the
        length of the data set of ``data``, which may be a loader.
        """
        self._begun += 1
        trainer = environment.get("BFTRAINER_ELEMENT", "").partition("_")[0]
        step, script = step_and_script(environment)
        told = step or sys.argv[1:], script, _shapes(model), _length(data)
        digest = hashlib.sha256(repr(told).encode(errors="replace")).hexdigest()[:16]
        return f"{trainer}.{self._begun}.{digest}"


def mark(checkpoint: Path, ranks: int, training: str, stream: Read | None = None) -> None:
    """Say that this checkpoint is complete; on one rank.

    Raises:
        OSError: it cannot be written.
    """
    path, files = _of(checkpoint), (one for one in checkpoint.rglob("*") if one.is_file())
    names = tuple(str(one.relative_to(checkpoint)) for one in files if one.name != _NAME)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(asdict(Mark(training, ranks, stream, names))))
    beside.replace(path)


def unmark(checkpoint: Path) -> None:
    """Remove the mark of a checkpoint that is written anew or removed. Raises OSError."""
    _of(checkpoint).unlink(missing_ok=True)


def rename(checkpoint: Path, new: Path) -> None:
    """Give a checkpoint another name, in place of what has that name. Raises OSError."""
    unmark(new)
    if new.is_dir() and not new.is_symlink():
        shutil.rmtree(new)
    before = _of(checkpoint)
    checkpoint.replace(new)
    if before.exists():  # beside a file; in a folder it has come along
        before.replace(_of(new))


def marked(checkpoint: Path) -> Mark | None:
    """Return a checkpoint's mark; None: it has none, or one of its files is gone."""
    try:
        with _of(checkpoint).open("rb") as file:
            told = json.loads(file.read(_LONGEST))
        training, ranks, stream = str(told["training"]), int(told["ranks"]), told.get("stream")
        read = Read(int(stream["samples"]), str(stream["way"])) if stream else None
        found = Mark(training, ranks, read, tuple(map(str, told.get("files", ()))))
        whole = all((checkpoint / name).is_file() for name in found.files)
        return found if found.ranks > 0 and whole else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def is_of(checkpoint: Path, training: str) -> bool:
    """Return whether a checkpoint is complete, and this training's."""
    found = marked(checkpoint)
    return found is not None and found.training == training


def newest(checkpoints: Iterable[Path], training: str) -> Path | None:
    """Return this training's newest complete checkpoint; None: there is none."""
    whole = [one for one in checkpoints if is_of(one, training)]
    return max(whole, key=lambda one: _of(one).stat().st_mtime_ns, default=None)


def newer(given: Path | None, checkpoints: Iterable[Path], training: str) -> Path | None:
    """Return what a training goes on from in place of what its script has given; None: that.

    Its newest complete checkpoint, unless the script has given another training's, or a file of
    which nothing is known.
    """
    if given is not None:
        given = given.resolve()
        if not is_of(given, training):
            return None
    own = newest(checkpoints, training)
    return None if own is None or own.resolve() == given else own


def _of(checkpoint: Path) -> Path:
    if checkpoint.is_dir():
        return checkpoint / _NAME
    return checkpoint.with_name(f"{checkpoint.name}.{_NAME}")


def _shapes(model: Any) -> list[tuple[int, ...]]:
    parameters = getattr(model, "parameters", tuple)
    return [tuple(one.shape) for one in parameters()]


def _length(data: Any) -> int | None:
    """Return how many samples there are; None: it is not known. A loader's length follows ranks."""
    data = getattr(data, "dataset", data)
    try:
        return len(data)
    except (TypeError, NotImplementedError):
        return None
