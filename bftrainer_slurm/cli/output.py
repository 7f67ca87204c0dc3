"""The end of what a trainer's elements have written, and the file, as far as the reader may see it.

``logs`` shows all that they have written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from bftrainer_slurm.cli.tail import Tail
from bftrainer_slurm.slurm.gateway import GatewayError
from bftrainer_slurm.slurm.outputs import Output, outputs_of
from bftrainer_slurm.slurm.run import SlurmRunner

_MOST_LINES = 20
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class LastOutput:
    """A file and its last lines; no lines if this user cannot read it here."""

    path: str
    lines: tuple[str, ...]


def last_output(array: int) -> LastOutput | None:
    """Return the file that a trainer's elements wrote to last, None if Slurm knows none.

    Costs slurmctld one RPC.
    """
    try:
        return newest(outputs_of(SlurmRunner(_PATIENCE_S), array))
    except GatewayError:
        return None


def newest(outputs: Sequence[Output]) -> LastOutput | None:
    """Return the file that was written last; if none can be read, any that was written to."""
    found: list[tuple[float, LastOutput]] = []
    for path in dict.fromkeys(path for one in outputs for path in one.paths):
        tail = Tail(path)
        with contextlib.suppress(OSError):
            lines = [line for line in tail.lines(last=True) if line.strip()]
            if lines:
                found.append((tail.changed_s, LastOutput(str(path), tuple(lines[-_MOST_LINES:]))))
    if found:
        return max(found, key=lambda pair: pair[0])[1]
    ran_first = sorted(outputs, key=lambda one: not one.node)
    return next((LastOutput(str(path), ()) for one in ran_first for path in one.paths), None)
