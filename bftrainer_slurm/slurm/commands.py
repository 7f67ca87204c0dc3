"""The gateway through Slurm's own commands: always there, the same on 22.05 to 26.05.

What each method costs slurmctld is in ``docs/rpcs.md``, and held to by a test.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence

from bftrainer_slurm.model import ElementId, Node, Queue, Reservation
from bftrainer_slurm.slurm.arrays import format_tasks
from bftrainer_slurm.slurm.nodelists import expand, node_state
from bftrainer_slurm.slurm.records import JobRow, queue_of, readable
from bftrainer_slurm.slurm.run import SlurmRunner

# squeue's format letters in the order of JobRow.
_JOB_FIELDS = (
    *("A", "F", "K", "T", "r", "Q", "V", "S", "e", "N", "n", "Y", "D", "P", "u", "j", "k"),
    *("f", "x", "W", "v"),
)
_NODE_FIELDS = ("R", "T", "b", "N")
_RESERVATION = re.compile(
    r"^ReservationName=(?P<name>\S+) StartTime=(?P<start>\d+) EndTime=(?P<end>\d+)"
    r" Duration=\S+ Nodes=(?P<nodes>\S+) ",
    re.MULTILINE,
)


class CommandGateway:
    """Slurm through squeue, sinfo, scontrol and scancel."""

    name = "commands"
    queue_rpcs = 2  # squeue asks for the partitions too, to sort by them

    def __init__(self, runner: SlurmRunner | None = None, grow_program: str | None = None) -> None:
        """Take what runs the commands, and the path of bftrainer-grow where there is one."""
        self._runner = runner or SlurmRunner()
        self._grow_program = grow_program
        self.grow_rpcs = 4 if grow_program is None else 1

    def nodes(self) -> tuple[Node, ...]:
        """See Gateway."""
        partitions: dict[str, set[str]] = {}
        seen: dict[str, tuple[str, str]] = {}
        # One line for all nodes of a partition that are alike: short on a large cluster too.
        for partition, state, features, nodes in self._table(("sinfo", "--all"), _NODE_FIELDS):
            for node in expand(nodes):
                partitions.setdefault(node, set()).add(partition)
                seen[node] = (state, features)
        return tuple(
            Node(
                name=name,
                state=node_state(state),
                partitions=frozenset(partitions[name]),
                features=frozenset(features.split(",")) - {"(null)", ""},
            )
            for name, (state, features) in seen.items()
        )

    def queue(self) -> Queue:
        """See Gateway.

        ``--array`` writes a line for each task. Without it squeue merges pending elements that
        have a record of their own into the pending rest of their array, whatever their state
        (``--array-unique`` would prevent just that, but is gone from 24.11 on). Slurm's own slip:
        where the rest is every n-th task (``0-20:2``) ``--array`` leaves out the last one.
        """
        command = ("squeue", "--local", "--all", "--states=all", "--array")
        return queue_of(_job_row(fields) for fields in self._table(command, _JOB_FIELDS))

    def reservations(self) -> tuple[Reservation, ...]:
        """See Gateway. Only operators make reservations, so the names in it can be trusted."""
        text = self._runner.read("scontrol", "--all", "--oneliner", "show", "reservation")
        return tuple(
            Reservation(
                match["name"], float(match["start"]), float(match["end"]), expand(match["nodes"])
            )
            for match in _RESERVATION.finditer(text)
        )

    def grow(self, element: ElementId, node: str, minutes: int | None = None) -> None:
        """See Gateway. ``minutes`` is the time limit to ask for.

        A backfill start shortens an element's limit (``--time-min``), and before 26.05 a requeue
        keeps it short; its owner may raise it again while it is pending.

        bftrainer-grow asks for all of it in one request. scontrol needs four: it looks at the
        job before it changes ReqNodeList, and its Priority= takes no INFINITE, which is what
        release sends.
        """
        if self._grow_program is not None:
            limit = () if minutes is None else (str(minutes),)
            self._runner.change(self._grow_program, str(element), node, *limit)
            return
        limit = () if minutes is None else (f"TimeLimit={minutes}",)
        target = (f"JobId={element}", f"ReqNodeList={node}", "StartTime=now")
        self._runner.change("scontrol", "update", *target, *limit)
        self._runner.change("scontrol", "release", str(element))

    def shrink(self, elements: Sequence[ElementId]) -> None:
        """See Gateway. Without ``Incomplete`` Slurm would also requeue what was cancelled."""
        self._for_elements(("requeuehold", "Incomplete"), elements)

    def revive(self, elements: Sequence[ElementId]) -> None:
        """See Gateway."""
        self._for_elements(("requeuehold",), elements)

    def hold(self, elements: Sequence[ElementId]) -> None:
        """See Gateway. A user's hold, so that owners can release their elements themselves."""
        self._for_elements(("uhold",), elements)

    def lengthen(self, elements: Sequence[ElementId], minutes: int) -> None:
        """See Gateway."""
        if elements:
            target = f"JobId={_expression(elements)}"
            self._runner.change("scontrol", "update", target, f"TimeLimit={minutes}")

    def cancel(self, array: int) -> None:
        """See Gateway. Cancelling what has ended already is no error."""
        self._runner.change("scancel", str(array))

    def _for_elements(self, request: Sequence[str], elements: Sequence[ElementId]) -> None:
        if elements:
            self._runner.change("scontrol", *request, _expression(elements))

    def _table(self, command: Sequence[str], fields: Sequence[str]) -> Iterator[list[str]]:
        """Ask for these fields of every record.

        Job names and comments are their owners' and can contain anything, newlines included. So
        records and fields end in a mark that nobody can know before: nothing can be forged.
        """
        mark = secrets.token_hex(16)
        form = mark.join(f"%{field}" for field in fields) + mark + "."
        text = self._runner.read(*command, "--noheader", f"--format={form}")
        for record in text.split(f"{mark}.\n")[:-1]:
            values = record.split(mark)
            if len(values) == len(fields):
                yield values


def _expression(elements: Sequence[ElementId]) -> str:
    arrays = {element.array for element in elements}
    if len(arrays) != 1:
        raise ValueError("elements of more than one trainer")
    return f"{arrays.pop()}_[{format_tasks(element.task for element in elements)}]"


def _job_row(values: Sequence[str]) -> JobRow:
    job_id, array, tasks, state, reason, priority, submit, start, end, *rest = values
    nodes, required, scheduled, count, partition, user, name, comment, *asked = rest
    constraint, excluded, licenses, reservation = ("" if one == "(null)" else one for one in asked)
    return JobRow(
        job_id=int(job_id),
        array=int(array),
        tasks=None if tasks == "N/A" else tasks,
        state=state,
        reason=reason,
        priority=int(priority),
        submit_s=_seconds(submit),
        start_s=_seconds(start),
        end_s=_seconds(end),
        nodes=nodes,
        required_nodes=required,
        scheduled_nodes=scheduled,
        node_count=int(count) if count.isdigit() else 0,
        partition=partition,
        user=user,
        name=readable(name),
        comment=readable(comment),
        constraint=constraint,
        excluded_nodes=excluded,
        licenses=licenses,
        reservation=reservation,
    )


def _seconds(text: str) -> float | None:
    """Unix seconds; Slurm writes N/A, NONE or Unknown where there is no time."""
    return float(text) if text.isdigit() else None
