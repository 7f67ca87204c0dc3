"""A small file says that a checkpoint is complete, whose it is, and how many ranks made it.

It is written last. So no checkpoint is taken that was cut off, nor one of an earlier training into
the same folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_NAME = "bftrainer.json"
_LONGEST = 4096  # bytes


@dataclass(frozen=True, slots=True)
class Mark:
    """What is known of a complete checkpoint."""

    trainer: str  # the number of its job array
    ranks: int


def mark(checkpoint: Path, ranks: int, environment: Mapping[str, str] = os.environ) -> None:
    """Say that this checkpoint is complete; on one rank.

    Raises:
        OSError: it cannot be written.
    """
    path = _of(checkpoint)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps({"trainer": _trainer(environment), "ranks": ranks}))
    beside.replace(path)


def unmark(checkpoint: Path) -> None:
    """Remove the mark of a checkpoint that has another name now. Raises OSError."""
    _of(checkpoint).unlink(missing_ok=True)


def marked(checkpoint: Path) -> Mark | None:
    """Return a checkpoint's mark; None: it has none."""
    try:
        with _of(checkpoint).open("rb") as file:
            told = json.loads(file.read(_LONGEST))
        found = Mark(str(told["trainer"]), int(told["ranks"]))
        return found if found.ranks > 0 else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def newest(checkpoints: Iterable[Path], environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return this trainer's newest complete checkpoint; None: there is none."""
    trainer, whole = _trainer(environment), []
    for one in checkpoints:
        found = marked(one)
        if found is not None and found.trainer == trainer:
            whole.append(one)
    return max(whole, key=lambda one: _of(one).stat().st_mtime_ns, default=None)


def _of(checkpoint: Path) -> Path:
    if checkpoint.is_dir():
        return checkpoint / _NAME
    return checkpoint.with_name(f"{checkpoint.name}.{_NAME}")


def _trainer(environment: Mapping[str, str]) -> str:
    return environment.get("BFTRAINER_ELEMENT", "").partition("_")[0]
