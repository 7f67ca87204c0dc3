"""The gateway through Slurm's own commands: works on every site, and the same on 22.05 to 26.05.

``docs/internals/rpcs.md`` says what each method costs slurmctld, and a test checks it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from bftrainer_slurm.arrays import format_tasks, parse_tasks
from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    ElementId,
    ElementState,
    Node,
    Queue,
    Reservation,
    Resources,
    TimeLimit,
)
from bftrainer_slurm.slurm.configuration import configuration, last_pass
from bftrainer_slurm.slurm.exclusive import ExclusiveJobs
from bftrainer_slurm.slurm.gateway import GatewayError, RefusedError, SlurmUnavailableError
from bftrainer_slurm.slurm.nodelists import barred_in, barred_list, expand, node_state
from bftrainer_slurm.slurm.records import QueueReader, Remembered, element_state
from bftrainer_slurm.slurm.resources import read_resources, read_used
from bftrainer_slurm.slurm.rows import LETTERS, JobRow, row_of
from bftrainer_slurm.slurm.run import SlurmRunner

_NODE_FIELDS = ("R", "T", "b", "w", "m", "c", "G", "N")
_RESERVATION = re.compile(
    r"^ReservationName=(?P<name>\S+) StartTime=(?P<start>\d+) EndTime=(?P<end>\d+)"
    r" Duration=\S+ Nodes=(?P<nodes>\S+) ",
    re.MULTILINE,
)
# How Slurm names elements in an answer about many: "...: 12_[0-3,7]: Invalid job id".
_REFUSED = re.compile(r"(?<=[:;] )(\d+)_\[?([\d,:-]+)\]?(?=: )")
_EXCLUDED = re.compile(r" ExcNodeList=(\S+) ")
_DIGITS = re.compile(r"(\d+)")
_WAIT = (ElementState.HELD, ElementState.PENDING, ElementState.DELAYED)
_IDS = "<elements>"
_LONGEST_LIST = 120_000  # characters; Linux takes arguments of 128 KiB
# slurmctld's answer to a time limit for an element whose node was lost while it was reclaimed. The
# element then waits, and still counts as being preempted (seen on 22.05; 26.05 has the same code).
_NO_LIMIT = "Job has already finished"


class CommandGateway:
    """Slurm through squeue, sinfo, scontrol and scancel."""

    name = "commands"

    def __init__(
        self,
        runner: SlurmRunner | None = None,
        grow_program: str | None = None,
        share: bool = False,
    ) -> None:
        """Take the runner of commands, and the path of bftrainer-grow if there is one.

        With ``share`` trainers may have parts of nodes.
        """
        self._runner = runner or SlurmRunner()
        self._grow_program = grow_program
        self._share = share
        self._queues = QueueReader(share)
        self._exclusive = ExclusiveJobs(self._runner)
        self._queue = Queue((), (), frozenset())
        self._nodes: tuple[Node, ...] = ()
        # Lists of excluded nodes in the written order, by array and by the list that squeue prints.
        self._written: dict[tuple[int, str], str] = {}

    def nodes(self) -> tuple[Node, ...]:
        """See Gateway. sinfo does not print slurmctld's order of nodes: we sort by name, as it.

        A site can choose another order (NodeRank, a topology plugin); only bftrainer-look knows it.
        """
        partitions: dict[str, set[str]] = {}
        seen: dict[str, tuple[str, ...]] = {}
        # One line for all nodes of a partition that are alike: short even on a large cluster.
        command = ("sinfo", "--local", "--all", "--exact")  # a federation may show all clusters
        for partition, *alike, nodes in self._table(command, _NODE_FIELDS):
            for node in expand(nodes):
                partitions.setdefault(node, set()).add(partition)
                seen[node] = tuple(alike)
        used = self._used() if self._share else {}
        return self._keep_nodes(
            Node(
                name=name,
                state=node_state(state),
                partitions=frozenset(partitions[name]),
                features=frozenset(features.split(",")) - {"(null)", ""},
                weight=int(weight),
                resources=read_resources(memory, (cpus,), gres),
                used=used.get(name),
            )
            for name, (state, features, weight, memory, cpus, gres) in sorted(
                seen.items(), key=_natural_key
            )
        )

    def _used(self) -> dict[str, Resources]:
        """Return what jobs have allocated on each node; AllocTRES names no GPUs at many sites."""
        command = ("scontrol", "--all", "--details", "--oneliner", "show", "node")
        return read_used(self._runner.read(*command))

    def _keep_nodes(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """Return these nodes: the tuple of the last reading if nothing has changed."""
        found = tuple(nodes)
        if found != self._nodes:
            self._nodes = found
        return self._nodes

    def queue(self) -> Queue:
        """See Gateway.

        ``--array`` prints a line for each task. Without it squeue merges pending elements that
        have a record of their own into the pending rest of their array, whatever their state
        (``--array-unique`` would prevent that, but 24.11 has removed it). Slurm has a bug: if the
        rest is every n-th task (``0-20:2``), ``--array`` leaves out the last one.
        """
        command = ("squeue", "--local", "--all", "--states=all", "--array")
        rows = [row_of(fields) for fields in self._table(command, LETTERS)]
        rows = self._exclusive.mark(rows)
        known, self._written = self._written, {}
        self._queue = self._queues.read([self._as_written(row, known) for row in rows])
        return self._queue

    def remember(self, trainers: Mapping[int, Remembered]) -> None:
        """See Gateway."""
        self._queues.remember(trainers)

    def reservations(self) -> tuple[Reservation, ...]:
        """See Gateway. Only operators make reservations, so their names can be trusted."""
        text = self._runner.read("scontrol", "--all", "--oneliner", "show", "reservation")
        return tuple(
            Reservation(
                match["name"], float(match["start"]), float(match["end"]), expand(match["nodes"])
            )
            for match in _RESERVATION.finditer(text)
        )

    def configuration(self, partition: str) -> Configuration:
        """See Gateway."""
        return configuration(self._runner, partition)

    def last_pass(self) -> BackfillPass | None:
        """See Gateway."""
        return last_pass(self._runner)

    def grow(
        self,
        elements: Sequence[ElementId],
        nodes: frozenset[str],
        others: frozenset[str],
        limit: TimeLimit | None,
        *,
        excluded: frozenset[str],
    ) -> None:
        """See Gateway. It overrides nodes that owners of elements have required.

        Slurm requeues them if they are preempted, even where a site's job_submit plugin forbids it.

        A backfill start shortens an element's limit (``--time-min``), and before 26.05 a requeue
        keeps it short. The owner may raise both limits again while the element is pending.

        bftrainer-grow sends all of this in one request. scontrol needs two, because its Priority=
        takes no INFINITE, which release sends; it changes ReqNodeList for one element only.
        """
        barred = barred_list(excluded, others - nodes)
        try:
            self._grow(elements, barred, limit)
        except RefusedError as error:
            if limit is None or _NO_LIMIT not in str(error):
                raise
            self._grow(error.elements or elements, barred, None)

    def _grow(self, elements: Sequence[ElementId], barred: str, limit: TimeLimit | None) -> None:
        minutes = {} if limit is None else {"TimeLimit": limit.minutes, "TimeMin": limit.least}
        if self._grow_program is not None:
            words = (self._grow_program, _IDS, *map(str, minutes.values()))
            self._change(elements, words, stdin=barred)
            return
        if len(barred) > _LONGEST_LIST:
            raise RefusedError("too many nodes for scontrol; install bftrainer-grow", elements)
        for element in self._choosy(elements):
            self._change([element], ("scontrol", "update", f"JobId={element}", "ReqNodeList="))
        update = ["scontrol", "update", f"JobId={_IDS}", f"ExcNodeList={barred}"]
        update += ["StartTime=now", "Requeue=1"]
        update += [f"{name}={value}" for name, value in minutes.items()]
        self._change(elements, update, ("scontrol", "release", _IDS))

    def _choosy(self, elements: Sequence[ElementId]) -> list[ElementId]:
        """Return the waiting elements whose owner has required a node, as of the last reading."""
        return [
            element.id
            for trainer in self._queue.trainers
            for element in trainer.elements
            if element.node is not None and element.state in _WAIT and element.id in elements
        ]

    def shrink(self, elements: Sequence[ElementId]) -> None:
        """See Gateway. Without ``Incomplete`` Slurm would also requeue cancelled elements."""
        self._change(elements, ("scontrol", "requeuehold", "Incomplete", _IDS))

    def revive(self, elements: Sequence[ElementId]) -> None:
        """See Gateway."""
        self._change(elements, ("scontrol", "requeuehold", _IDS))

    def hold(self, elements: Sequence[ElementId]) -> None:
        """See Gateway. A user's hold, so that owners can release their elements themselves."""
        self._change(elements, ("scontrol", "uhold", _IDS))

    def end_at(self, elements: Sequence[ElementId], end_s: float) -> None:
        """See Gateway. All elements get the same end, whenever they started."""
        end = f"EndTime=uts{int(end_s)}"
        self._change(elements, ("scontrol", "update", f"JobId={_IDS}", end))

    def cancel(self, array: int) -> None:
        """See Gateway. Cancelling an ended element is not an error."""
        self._runner.change("scancel", str(array))

    def trim(self, elements: Sequence[ElementId]) -> None:
        """See Gateway."""
        self._change(elements, ("scancel", _IDS))

    def label(self, elements: Sequence[ElementId], comment: str) -> None:
        """See Gateway."""
        self._change(elements, ("scontrol", "update", f"JobId={_IDS}", f"Comment={comment}"))

    def tell(self, element: ElementId, text: str) -> None:
        """See Gateway. By job id: for ARRAY_TASK scontrol notifies another element (22.05)."""
        every = (one for trainer in self._queue.trainers for one in trainer.elements)
        job_id = next((one.job_id for one in every if one.id == element), None)
        if job_id is None:
            raise RefusedError(f"{element} did not run at the last look", [element])
        self._runner.change("scontrol", "notify", str(job_id), text)

    def _as_written(self, row: JobRow | str, known: Mapping[tuple[int, str], str]) -> JobRow | str:
        """Return the record with its ``ExcNodeList`` in the written order; squeue sorts it."""
        if isinstance(row, str) or row.tasks is None or not row.excluded_nodes:
            return row
        if element_state(row).over:
            return row
        key = (row.array, row.excluded_nodes)
        if key not in self._written:
            self._written[key] = known[key] if key in known else self._as_scontrol_shows(*key)
        return replace(row, excluded_nodes=self._written[key])

    def _as_scontrol_shows(self, array: int, nodes: str) -> str:
        """Return a list in the order in which it was written, if scontrol shows it.

        The owner can forge the text, but it is about this array only. Once for each list.
        """
        try:
            shown = self._runner.read("scontrol", "--oneliner", "show", "job", str(array))
        except SlurmUnavailableError:
            raise
        except GatewayError:  # the job is gone
            return nodes
        same = (one for one in _EXCLUDED.findall(shown) if barred_in(one) == barred_in(nodes))
        return next(same, nodes)

    def _change(
        self, elements: Sequence[ElementId], *commands: Sequence[str], stdin: str = ""
    ) -> None:
        """Run commands for elements of one trainer; each leaves out elements refused before."""
        left = list(elements)
        refused: list[ElementId] = []
        errors: list[str] = []
        for command in commands:
            if not left:
                break
            words = [word.replace(_IDS, _expression(left)) for word in command]
            try:
                self._runner.change(*words, stdin=stdin)
            except RefusedError as error:
                errors.append(str(error))
                bad = _refused_elements(str(error), left) or left
                refused += bad
                left = [element for element in left if element not in bad]
        if errors:
            raise RefusedError("; ".join(errors), refused)

    def _table(self, command: Sequence[str], fields: Sequence[str]) -> Iterator[list[str]]:
        """Ask for these fields of every record.

        Owners can write anything into job names and comments, newlines included. Records and
        fields end in a random mark, so nobody can forge them.
        """
        mark = secrets.token_hex(16)
        form = mark.join(field and f"%{field}" for field in fields) + mark + "."
        text = self._runner.read(*command, "--noheader", f"--format={form}")
        for record in text.split(f"{mark}.\n")[:-1]:
            values = record.split(mark)
            if len(values) == len(fields):
                yield values


def _refused_elements(words: str, elements: Sequence[ElementId]) -> list[ElementId]:
    """Return the elements that a refusal names; empty if it names none, or cuts the list off."""
    if "...: " in words:
        return []
    named = {
        (int(array), task)
        for array, tasks in _REFUSED.findall(words)
        for task in parse_tasks(tasks, below=1 + max(element.task for element in elements))
    }
    return [element for element in elements if (element.array, element.task) in named]


def _expression(elements: Sequence[ElementId]) -> str:
    arrays = {element.array for element in elements}
    if len(arrays) != 1:
        raise ValueError("elements of more than one trainer")
    return f"{arrays.pop()}_[{format_tasks(element.task for element in elements)}]"


def _natural_key(item: tuple[str, object]) -> list[tuple[int, str]]:
    """Return a key that sorts names like slurmctld: n2 before n10."""
    return [
        (int(part), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(item[0]) if part
    ]
