"""The gateway that reads through bftrainer-look, to which slurmctld sends only what has changed.

It parses only lines that it has not seen before. Reservations and all changes go through Slurm's
commands and bftrainer-grow.
"""

from __future__ import annotations

import re
import time

from bftrainer_slurm.model import Node, Queue
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.nodelists import node_state
from bftrainer_slurm.slurm.resources import read_resources
from bftrainer_slurm.slurm.rows import JobRow, row_of
from bftrainer_slurm.slurm.run import SlurmRunner

# How often to ask for everything: slurmctld finds changes by its clock, which may be set back.
_ALL_S = 60.0
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_UNESCAPED = {"t": "\t", "n": "\n"}


class LookGateway(CommandGateway):
    """Reads jobs and nodes through bftrainer-look."""

    name = "look"

    def __init__(
        self,
        look_program: str,
        runner: SlurmRunner | None = None,
        grow_program: str | None = None,
        share: bool = False,
    ) -> None:
        """Take the paths of bftrainer-look, and of bftrainer-grow if there is one."""
        super().__init__(runner, grow_program, share)
        self._look_program = look_program
        self._last: dict[
            str, tuple[str, float]
        ] = {}  # SINCE of the next request, and when we got it
        self._rows: dict[str, JobRow | str] = {}  # by line
        self._node_lines: dict[str, Node] = {}

    def nodes(self) -> tuple[Node, ...]:
        """See Gateway."""
        lines = self._changed("shared" if self._share else "nodes")
        if lines is not None:
            known = self._node_lines
            self._node_lines = {line: known.get(line) or _node(_fields(line)) for line in lines}
            self._keep_nodes(self._node_lines.values())
        return self._nodes

    def queue(self) -> Queue:
        """See Gateway."""
        lines = self._changed("jobs")
        if lines is not None:
            known = self._rows
            self._rows = {line: known.get(line) or row_of(_fields(line)) for line in lines}
            self._queue = self._queues.read(self._rows.values())
        return self._queue

    def _changed(self, what: str) -> list[str] | None:
        """Return the lines for all jobs or nodes, None if none has changed."""
        since, read_s = self._last.get(what, ("0", 0.0))
        now_s = time.monotonic()
        text = self._runner.read(
            self._look_program, what, "0" if now_s - read_s > _ALL_S else since
        )
        if not text:
            return None
        since, *lines = text.split("\n")[:-1]
        self._last[what] = since, now_s
        return lines


def _fields(line: str) -> list[str]:
    if "\\" in line:
        return [
            _ESCAPED.sub(lambda match: _UNESCAPED.get(match[1], match[1]), field)
            for field in line.split("\t")[:-1]
        ]
    return line.split("\t")[:-1]


def _node(fields: list[str]) -> Node:
    # Under "shared" each line also has used memory, processors and GRES.
    name, state, features, partitions, weight, memory, cpus, gres, *used = fields
    return Node(
        name=name,
        state=node_state(state),
        partitions=frozenset(partitions.split(",")) - {""},
        features=frozenset(features.split(",")) - {""},
        weight=int(weight),
        resources=read_resources(memory, (cpus,), gres),
        used=read_resources(used[0], (used[1],), used[2]) if len(used) == 3 else None,
    )
