"""The sruns of the batch script that runs here: which one trains, and what starts it elsewhere.

The SPANK plugin in each srun connects to a socket of ours, and waits for one line: ``go NUMBER``,
or ``exit CODE`` where another element's run of the same script is through with this step.

The step whose processes join the trainer's group is the training. A torchrun will, as is seen here;
others ask before they do (``rendezvous.only_launcher``), so that the other nodes start at once, and
are told ``go``, or ``beside`` while another step trains. Of those that cannot ask, the keeper knows
that they have joined.

Who connects is read from its ``/proc``, so nobody but this user can name one.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import select
import shutil
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bftrainer_slurm.elastic.batch.inherited import Inherited, inherited_by
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.processes import processes_with
from bftrainer_slurm.elastic.rendezvous.command_line import is_torchrun
from bftrainer_slurm.keeper.messages import MAX_STEPS, MAX_WHAT, Batch, Step

MAX_STEP = 256 * 1024  # bytes of what starts a step: command line, folder, what the script has set
RECLAIM_S = 3.0  # a step that is killed for a reclaim may end so long before its script is told
STEP = "BFTRAINER_STEP"  # the step's number, in its processes
SOCKET = "BFTRAINER_SRUNS"  # where the srun of a script connects to: an abstract Unix socket

_LOOK_S, _LOOKS = 0.2, 50  # at a new step's processes
_BACKEND = "PET_RDZV_BACKEND"
_NUMBERS = re.compile(r"\d+")
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Command:
    """What starts a step on another element: an srun there, with what the script has changed."""

    words: list[str]
    folder: str
    changed: Mapping[str, str]
    removed: list[str]
    job: str  # of the element whose script it is
    node: str
    mark: str  # the same wherever the script runs, in all its runs
    inherited: Inherited

    def packed(self) -> str:
        """Return it as text without blanks; empty if it is too long."""
        text = json.dumps(asdict(self)).encode()
        packed = base64.b64encode(zlib.compress(text)).decode()
        return packed if len(text) <= MAX_STEP and len(packed) <= MAX_WHAT else ""

    def words_here(self, environment: Mapping[str, str]) -> list[str]:
        """Return the command line on this element, where it named the other one as its place."""
        text = "\0".join(self.words)
        job, node = environment["SLURM_JOB_ID"], environment["SLURMD_NODENAME"]
        for option, there, here in (
            ("--jobid[=\0]", self.job, job),
            ("--nodelist[=\0]|-w\0?", self.node, node),
        ):
            text = re.sub(rf"(?<=\0)({option}){re.escape(there)}(?=\0|$)", rf"\g<1>{here}", text)
        words = text.split("\0")
        if not Path(words[0]).is_file():
            words[0] = shutil.which(Path(words[0]).name) or words[0]
        return words

    def meets_elsewhere(self, before: Mapping[str, str]) -> bool:
        """Whether it has a rendezvous of its own, of which nobody hears."""
        return (self.changed.get(_BACKEND) or before.get(_BACKEND)) == "c10d"

    def environment_here(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the step's environment on this element."""
        kept = {name: value for name, value in environment.items() if name not in self.removed}
        return kept | dict(self.changed)


def unpacked(text: str) -> Command:
    """Read what ``packed`` made, on another of the trainer's nodes."""
    found = json.loads(zlib.decompress(base64.b64decode(text)))
    return Command(**found | {"inherited": Inherited(**found["inherited"])})


def command_of(pid: int, before: Mapping[str, str]) -> Command:
    """Return what a running srun is; ``before`` was the script's environment. Raises OSError."""
    process = Path(f"/proc/{pid}")
    words = _words(process / "cmdline")
    words[0] = str((process / "exe").readlink())
    now = _environment(pid)
    inherited = inherited_by(pid, MAX_STEP)
    same = _NUMBERS.sub("0", repr(words)) + inherited.stdin
    mark = hashlib.sha256(same.encode()).hexdigest()[:16]
    return Command(
        words,
        str((process / "cwd").readlink()),
        {name: value for name, value in now.items() if before.get(name) != value},
        [name for name in before if name not in now and name != SOCKET],
        before.get("SLURM_JOB_ID", ""),
        before.get("SLURMD_NODENAME", ""),
        mark,
        inherited,
    )


def _environment(pid: int) -> dict[str, str]:
    return dict(one.split("=", 1) for one in _words(Path(f"/proc/{pid}/environ")) if "=" in one)


def _words(path: Path) -> list[str]:
    return [os.fsdecode(one) for one in path.read_bytes().split(b"\0")[:-1]]


def _starts_torchrun(srun: socket.socket, job: str, number: int) -> bool:
    """Whether a step's processes here become a torchrun as it begins.

    Then it is certain that it trains, before its Python has imported torch and asks: the other
    nodes begin some seconds earlier.
    """
    for _ in range(_LOOKS):
        if select.select([srun], [], [], _LOOK_S)[0]:  # it has ended
            return False
        for process in processes_with(f"SLURM_JOB_ID={job}", f"{STEP}={number}"):
            with contextlib.suppress(OSError):
                if is_torchrun(_words(Path(f"/proc/{process}/cmdline"))):
                    return True
    return False


class Steps:
    """Serves the sruns of the script; ``say`` is called with what there is to say at each change.

    ``done``: the steps that another run of this script is through with. ``environment`` is the
    script's, and gets the name of the socket.
    """

    def __init__(
        self, environment: dict[str, str], done: Sequence[Step], say: Callable[[Batch], None]
    ) -> None:
        self._say = say
        self._before = environment
        self._lock = threading.Lock()
        self._count = 0
        self._running: dict[int, Command] = {}
        self._training = -1  # the step that trains
        self._done = {number: (code, mark) for number, code, mark in done}
        self._beside = False  # whether a step has begun while another one trained
        self.reclaimed = threading.Event()
        self.failed_s = float("-inf")  # when a step has failed last
        name = f"bftrainer-{os.urandom(16).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(f"\0{name}")
        self._socket.listen()
        environment[SOCKET] = name
        threading.Thread(target=self._accept, name="bftrainer-steps", daemon=True).start()

    def tell(self) -> None:
        """Say what runs here."""
        with self._lock:
            self._tell()

    def trains(self, number: int) -> bool:
        """Return whether this step, which joins the training, is the one that trains.

        It is if no other one trains; the other elements start it too. -1: srun's ``--export`` has
        taken its number away, so that it is known only while no other step runs.
        """
        with self._lock:
            if number < 0 and len(self._running) == 1:
                (number,) = self._running
            if number not in self._running:
                return True
            before = self._training, self._beside
            if self._training < 0:
                self._training = number
            self._beside |= self._training != number
            if before != (self._training, self._beside):
                self._tell()
            return self._training == number

    def _tell(self) -> None:
        if self.reclaimed.is_set():  # what the script does now, it does again on another node
            return
        step, what = self._training, ""
        if step >= 0 and not (what := self._running[step].packed()):
            say(f"step {step} has too many variables and words for other nodes to start it too")
            step = -1
        done: tuple[Step, ...] = ()
        if not self._beside:
            done = tuple((one, *rest) for one, rest in sorted(self._done.items())[:MAX_STEPS])
        self._say(Batch("leads", step, what, done, beside=self._beside))

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            try:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            except RuntimeError as error:  # the user has too many processes
                connection.close()  # the srun goes on by itself
                say(f"a step of this node is not passed on: {error}")

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._follow(connection)
            except (OSError, ValueError) as error:
                say(f"a step of this node is not passed on: {error}")

    def _follow(self, connection: socket.socket) -> None:
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(told)
        if uid != os.getuid():
            return
        if (step := _environment(pid).get(STEP)) is not None:
            connection.sendall(b"go\n" if self.trains(int(step)) else b"beside\n")
            return
        command = command_of(pid, self._before)
        with self._lock:
            number, self._count = self._count, self._count + 1
            code, done = self._done.get(number, (0, ""))
            if done != command.mark:
                self._done.pop(number, None)
                self._running[number] = command
                self._beside |= self._training >= 0
                self._tell()
        if done == command.mark:
            say(f"step {number} is done, with exit code {code}: it does not run again")
            connection.sendall(b"exit %d\n" % code)
            return
        connection.sendall(b"go %d\n" % number)
        surely = command.meets_elsewhere(self._before)
        if surely or _starts_torchrun(connection, command.job, number):
            self.trains(number)
        self._end(number, connection.recv(16))

    def _end(self, number: int, said: bytes) -> None:
        """An srun has ended. One that failed may have been killed: then it is not done."""
        code = int(said) & 255 if said.strip().isdigit() else None
        with self._lock:
            mark, trained = self._running.pop(number).mark, self._training == number
            if trained:
                self._training = -1
        if code != 0:
            self.failed_s = time.monotonic()
            if self.reclaimed.wait(RECLAIM_S):
                return
        if trained:
            with self._lock:
                if code is not None:
                    self._done[number] = (code, mark)
                self._tell()
