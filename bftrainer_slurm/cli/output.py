"""Where an element's output lies, and its last lines, as far as the user who asks may read them.

Slurm is asked for the paths; the controller has no part in it.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.slurm.gateway import GatewayError
from bftrainer_slurm.slurm.run import SlurmRunner

_PATH = re.compile(r"^ +Std(?:Err|Out)=(/.+)$", re.MULTILINE)
_NO_TASK = "4294967294"  # what Slurm writes for %a of the tasks that have no record of their own
_MOST_BYTES = 16_384
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Output:
    """A file, and the end of what is in it; no lines where this user cannot read it here."""

    path: str
    lines: tuple[str, ...]


def last_output(array: int) -> Output | None:
    """Return what was written last to the outputs of a trainer's elements, None: Slurm knows none.

    Costs slurmctld one RPC.
    """
    try:
        told = SlurmRunner(_PATIENCE_S).read("scontrol", "show", "job", str(array))
    except GatewayError:
        return None
    return newest(dict.fromkeys(path for path in _PATH.findall(told) if _NO_TASK not in path))


def newest(paths: dict[str, None]) -> Output | None:
    """Return the file that was written last, else the first of the paths."""
    found = [(text[0], path, text[1]) for path in paths if (text := _end_of(Path(path)))]
    if found:
        _, path, end = max(found)
        return Output(path, tuple(line for line in end.splitlines() if line.strip()))
    return next((Output(path, ()) for path in paths), None)


def _end_of(path: Path) -> tuple[int, str] | None:
    """Return when a file was written and its end; None where it is none that this user can read.

    A user may have named anything as the output of a job: a pipe must not keep the reader waiting.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or not about.st_size:
                return None
            file.seek(max(0, about.st_size - _MOST_BYTES))
            return about.st_mtime_ns, file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
