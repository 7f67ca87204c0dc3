"""The batch script's first process where no SPANK plugin does its work (personal mode).

It tells the keeper that the element is up, sets torchrun's environment and runs the user's script.
When the element is reclaimed, the script gets the grace to end, and then all its processes are
killed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.elastic.environment import FIRST, element_environment, make_folder
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.processes import kill_job
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import (
    JOB_SECRET,
    CredentialError,
    read_secret,
    secret_of_job,
)
from bftrainer_slurm.keeper.home import StateError, own_secret, read_address
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.spec import SpecError, TrainerRecord, parse_comment

MARKER = "#### bftrainer: the user's script follows ####"


@dataclass(frozen=True, slots=True)
class Allocation:
    """What Slurm has given this element: its job and its node."""

    element: ElementId
    job_id: str
    node: str


class _Reclaimed(BaseException):
    """SIGTERM has come. Not an Exception, so that no ``except Exception`` catches it."""


def main() -> int:
    """Run the element; return the user script's exit code."""
    arguments = _parse_arguments()
    if b"\0LC_CTYPE=" not in b"\0" + Path("/proc/self/environ").read_bytes():
        os.environ.pop("LC_CTYPE", None)  # Python's own (PEP 538): the script's job has none
    allocation = read_allocation(os.environ)
    with tempfile.TemporaryDirectory(prefix="bftrainer-") as workplace:
        path = _user_script(arguments.script, Path(workplace))
        signal.signal(signal.SIGTERM, _raise_reclaimed)
        return _run(arguments, allocation, [str(path), *arguments.arguments], Path(workplace))


def _run(
    arguments: argparse.Namespace, allocation: Allocation, command: Sequence[str], workplace: Path
) -> int:
    script = None
    client = None
    try:
        client, secret, joined = _join(arguments.state, allocation)
        if joined is None:  # it has finished: Slurm shall see each of its elements end well
            return 0
        run_id, is_first = joined
        folder = workplace / "python"
        make_folder(folder)
        variables = element_environment(
            allocation.element,
            arguments.record,
            run_id,
            client.address,
            os.environ,
            folder,
            os.environ.get("BFTRAINER_LOCAL_ADDRESS"),
        )
        variables[FIRST] = str(int(is_first))
        variables[JOB_SECRET] = secret.decode()
        with _heard_afterwards():
            own = dict(arguments.variables)
            script = subprocess.Popen(command, env=os.environ | variables | own)
        code = script.wait()
        _tell(client, NoteKind.GONE, allocation)
    except _Reclaimed:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _tell(client, NoteKind.LEAVING, allocation)
        _end(script, allocation, arguments.record.spec.grace_s)
        _tell(client, NoteKind.GONE, allocation)
        return 128 + signal.SIGTERM
    return code if code >= 0 else 128 - code


def read_allocation(environment: Mapping[str, str]) -> Allocation:
    """Return this element's allocation, from the variables that slurmstepd sets."""
    element = ElementId(
        int(environment["SLURM_ARRAY_JOB_ID"]), int(environment["SLURM_ARRAY_TASK_ID"])
    )
    return Allocation(element, environment["SLURM_JOB_ID"], environment["SLURMD_NODENAME"])


def _join(
    state: Path, allocation: Allocation
) -> tuple[KeeperClient, bytes, tuple[str, bool] | None]:
    """Say that the element is up, again and again until the keeper answers; see ``client.join``.

    The keeper of a state folder may start later, or start again at another address. The second
    value is the trainer's secret.
    """
    element, complained = allocation.element, False
    while True:
        try:
            secret = secret_of_job(read_secret(own_secret(state)), element.array, os.getuid())
            client = KeeperClient(read_address(state) or f"(none in {state})")
            return client, secret, client.join(element.array, element.task, allocation.node, secret)
        except (KeeperError, CredentialError, StateError, OSError) as error:
            if not complained:
                say(f"waiting for the controller's side: {error}")
                complained = True
            time.sleep(1.0)


def _end(script: subprocess.Popen[bytes] | None, allocation: Allocation, grace_s: float) -> None:
    if script is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            script.wait(grace_s)
    if not kill_job(allocation.job_id, spare=(os.getpid(),)):
        say("some processes of this job cannot be ended")


def _tell(client: KeeperClient | None, kind: NoteKind, allocation: Allocation) -> None:
    if client is None:
        return
    with contextlib.suppress(KeeperError):  # the controller sees it at its next look
        client.tell(Note(kind, allocation.element.array, allocation.element.task, allocation.node))


def _user_script(submitted: Path, workplace: Path) -> Path:
    """Cut the user's own script out of the submitted one; return its path."""
    _, marker, own = submitted.read_bytes().partition(MARKER.encode() + b"\n")
    if not marker:
        raise SystemExit(f"bftrainer: {submitted} was not made by 'bftrainer submit'")
    path = workplace / "script"
    path.write_bytes(own)
    path.chmod(0o700)
    return path


def _raise_reclaimed(number: int, frame: object) -> None:
    raise _Reclaimed


@contextlib.contextmanager
def _heard_afterwards() -> Iterator[None]:
    """Hold back a SIGTERM until the script's process is known, so that it gets its grace."""
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    yield
    signal.signal(signal.SIGTERM, _raise_reclaimed)
    if heard:
        raise _Reclaimed


def _record(text: str) -> TrainerRecord:
    try:
        return parse_comment(text)
    except SpecError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text} is not NAME=VALUE")
    return name, value


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs one element of a trainer.")
    parser.add_argument(
        "--state", type=Path, required=True, help="the folder of one's own controller"
    )
    parser.add_argument("--record", type=_record, required=True)
    parser.add_argument(
        "--set",
        dest="variables",
        type=_variable,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of the user's script",
    )
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
