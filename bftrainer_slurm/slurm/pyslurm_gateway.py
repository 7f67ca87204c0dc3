"""The gateway that reads through pyslurm, if a build for the installed Slurm can be imported.

Only this module imports pyslurm, which is GPL-2.0 and not part of this package;
``scripts/build-pyslurm`` builds it. Changes go through Slurm's commands: pyslurm takes integer job
ids, and an array task without a record of its own has no such id yet.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bftrainer_slurm.model import Node, Queue, Reservation
from bftrainer_slurm.own_python import own_python
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.gateway import GatewayError
from bftrainer_slurm.slurm.nodelists import expand, node_state
from bftrainer_slurm.slurm.rows import UNREADABLE, JobRow, readable
from bftrainer_slurm.slurm.run import SlurmRunner, error_for

_PROBE_S = 20.0


class PyslurmGateway(CommandGateway):
    """Reads through pyslurm, changes through Slurm's commands."""

    name = "pyslurm"

    def __init__(self, runner: SlurmRunner | None = None, grow_program: str | None = None) -> None:
        """Import pyslurm.

        Raises:
            GatewayError: pyslurm cannot be imported here; the message says why.
        """
        super().__init__(runner, grow_program)
        self._pyslurm = _import_pyslurm()

    def nodes(self) -> tuple[Node, ...]:
        """See Gateway."""
        return self._keep_nodes(
            Node(
                name=node.name,
                state=node_state(node.state),
                partitions=frozenset(node.partitions),
                features=frozenset(node.active_features),
                weight=node.weight,
            )
            for node in self._load(self._pyslurm.Nodes.load)
        )

    def queue(self) -> Queue:
        """See Gateway."""
        self._queue = self._queues.read(_row_of(job) for job in self._load(self._pyslurm.Jobs.load))
        return self._queue

    def reservations(self) -> tuple[Reservation, ...]:
        """See Gateway."""
        return tuple(
            Reservation(item.name, float(item.start_time), float(item.end_time), expand(item.nodes))
            for item in self._load(self._pyslurm.Reservations.load)
        )

    def _load(self, load: Callable[[], Any]) -> Iterable[Any]:
        try:
            records: Iterable[Any] = load().values()
        except self._pyslurm.RPCError as error:
            raise error_for(f"pyslurm: {error}", GatewayError) from error
        return records


def _import_pyslurm() -> Any:
    """Import pyslurm if a child process can.

    Without a slurm.conf, or if pyslurm was built for another Slurm, the import ends the process.
    """
    if importlib.util.find_spec("pyslurm") is None:
        raise GatewayError("pyslurm is not installed")
    conf = os.environ.get("SLURM_CONF")
    if conf is not None and not Path(conf).is_file():
        # The child would fail too, but only after libslurm has searched for another for a minute.
        raise GatewayError(f"pyslurm cannot be imported: SLURM_CONF={conf} is not a file")
    try:
        probe = subprocess.run(
            own_python("-c", "import pyslurm"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=_PROBE_S,
        )
    except subprocess.TimeoutExpired as error:
        raise GatewayError(f"importing pyslurm takes more than {_PROBE_S:g} s") from error
    if probe.returncode != 0:
        last_words = probe.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        words = last_words[0] if last_words else f"the import ends Python ({probe.returncode})"
        raise GatewayError(f"pyslurm cannot be imported: {words}")
    # libslurm reads this once, when it first writes an array expression. Otherwise it cuts
    # expressions off after 64 characters.
    os.environ["SLURM_BITSTR_LEN"] = "0"
    flags = sys.getdlopenflags()
    try:
        import pyslurm
    finally:
        # pyslurm makes every later import of a C library bind globally; undo that for other code.
        sys.setdlopenflags(flags)
    return pyslurm


def _row_of(job: Any) -> JobRow | str:
    try:
        return _job_row(job)
    except (ValueError, TypeError, AttributeError) as error:
        return f"{job.id}: {error}"


def _job_row(job: Any) -> JobRow:
    return JobRow(
        job_id=job.id,
        array=job.array_id or job.id,
        tasks=_tasks(job),
        state=job.state,
        reason=job.state_reason or "None",  # pyslurm turns Slurm's word "None" into None
        priority=int(job.priority or 0),
        submit_s=job.submit_time,
        start_s=job.start_time,
        # Slurm shows an end a year ahead if there is no limit.
        end_s=job.end_time if job.time_limit else None,
        nodes=job.allocated_nodes or "",
        required_nodes=job.required_nodes or "",
        scheduled_nodes=job.scheduled_nodes or "",
        node_count=job.num_nodes or 0,
        partition=job.partition or "",
        user=job.user_name or "",
        name=_users_text(job, "name"),
        comment=_users_text(job, "comment"),
        constraint=",".join(job.constraints),
        excluded_nodes=job.excluded_nodes or "",
        licenses=",".join(job.licenses),
        reservation=job.reservation or "",
        limit=str(job.time_limit or ""),
    )


def _tasks(job: Any) -> str | None:
    if job.array_id is None:
        return None
    if job.array_tasks_waiting is not None or job.array_task_id is not None:
        return job.array_tasks_waiting or str(job.array_task_id)
    # pyslurm 25.11 turns task 0 into None, like the task of a cancelled pending rest.
    rest = job.state == "CANCELLED" and job.id == job.array_id and not job.allocated_nodes
    return None if rest else "0"


def _users_text(job: Any, field: str) -> str:
    """Return a name or comment: bytes to Slurm, but pyslurm fails if they are not UTF-8."""
    try:
        return readable(getattr(job, field) or "")
    except UnicodeDecodeError:
        return UNREADABLE
