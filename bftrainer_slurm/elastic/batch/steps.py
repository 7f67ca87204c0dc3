"""The sruns of the batch script that runs here: which one trains, and what starts it elsewhere.

The SPANK plugin in each srun connects to a socket of ours, and waits for one line. It is ``go
NUMBER``; ``go NUMBER beside`` while another srun trains; or ``exit CODE`` where another element's
run of the same script is through with this step.
What an srun is is read from its ``/proc``, so nobody but this user can name one.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.elastic.batch.inherited import Inherited, inherited_by
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.keeper.messages import MAX_STEPS, MAX_WHAT, Batch, Step

MAX_STEP = 256 * 1024  # bytes of what starts a step: command line, folder, what the script has set
MAX_SCRIPT = 64 * 1024  # characters of a script that are looked at
MAX_SCRIPTS = 16  # that are looked at for a step
RECLAIM_S = 3.0  # a step that is killed for a reclaim may end so long before its script is told
STEP = "BFTRAINER_STEP"  # the step's number, in its processes
SOCKET = "BFTRAINER_SRUNS"  # where the srun of a script connects to: an abstract Unix socket

_TRAINS = re.compile(
    r"torchrun|torch\.distributed|accelerate|deepspeed|llamafactory-cli|\btune run\b"
    # and what a Python script says that takes part in a training by itself
    r"|init_process_group|init_distributed|init_device_mesh"
    r"|DistributedDataParallel|FullyShardedDataParallel|Trainer\(|\bFabric\(|LightningCLI\("
)
_BETWEEN = re.compile(r"""[\s;&|<>()'"=]+""")  # the words of a command line
_BACKEND = "PET_RDZV_BACKEND"
_NUMBERS = re.compile(r"\d+")
_CREDENTIALS = struct.Struct("3i")
_BESIDE = (
    "an srun trains already: the other nodes take part in that one, and what begins meanwhile runs "
    "on {} alone, as in an ordinary job of one node. For several trainings submit a trainer each"
)


@dataclass(frozen=True, slots=True)
class Command:
    """What starts a step on another element: an srun there, with what the script has changed."""

    words: tuple[str, ...]
    folder: str
    changed: Mapping[str, str]
    removed: tuple[str, ...]
    job: str  # of the element whose script it is
    node: str
    mark: str  # the same wherever the script runs, in all its runs
    inherited: Inherited

    def packed(self) -> str:
        """Return it as text without blanks; empty if it is too long."""
        fields: list[object] = [self.words, self.folder, dict(self.changed), self.removed]
        fields += [self.job, self.node, self.mark]
        fields += [dict(self.inherited.limits), self.inherited.umask, self.inherited.stdin]
        text = json.dumps(fields).encode()
        packed = base64.b64encode(zlib.compress(text)).decode()
        return packed if len(text) <= MAX_STEP and len(packed) <= MAX_WHAT else ""

    def words_here(self, environment: Mapping[str, str]) -> list[str]:
        """Return the command line on this element, where it named the other one as its place."""
        job = self.job, environment["SLURM_JOB_ID"]
        node = self.node, environment["SLURMD_NODENAME"]
        words = list(self.words)
        for option, (there, here) in {"--jobid": job, "--nodelist": node, "-w": node}.items():
            equals = "" if option == "-w" else "="
            for at, word in enumerate(words):
                if word == f"{option}{equals}{there}":
                    words[at] = f"{option}{equals}{here}"
                elif word == there and at and words[at - 1] == option:
                    words[at] = here
        if not Path(words[0]).is_file():
            words[0] = shutil.which(Path(words[0]).name) or words[0]
        return words

    def surely_trains(self, before: Mapping[str, str]) -> bool:
        """Whether it starts a launcher, or has a rendezvous of its own, of which nobody hears."""
        backend = self.changed.get(_BACKEND) or before.get(_BACKEND, "")
        return backend == "c10d" or any(_TRAINS.search(text) for text in self._texts())

    def _texts(self) -> Iterator[str]:
        """Return what may say what it starts: its words, its input, and the scripts of these."""
        shell = [
            " ".join(self.words),
            base64.b64decode(self.inherited.stdin).decode(errors="replace"),
        ]
        looked: set[Path] = set()
        for text in shell:  # it gets longer on the way
            yield text
            for path in self._scripts_in(text):
                if path in looked or len(looked) >= MAX_SCRIPTS:
                    continue
                looked.add(path)
                with contextlib.suppress(OSError, ValueError):
                    if path.is_file():
                        with path.open(errors="replace") as script:
                            found = script.read(MAX_SCRIPT)
                        if path.suffix == ".py":
                            yield found
                        else:
                            shell.append(found)

    def _scripts_in(self, shell: str) -> Iterator[Path]:
        """Return the scripts that a command line, or a shell script, names."""
        words = _BETWEEN.split(shell)
        for before, word in itertools.pairwise(["", *words]):
            if word.endswith((".sh", ".bash", ".py")):
                yield Path(self.folder, word)
            elif before == "-m" and word:
                module = Path(self.folder, word.strip(".").replace(".", "/"))
                yield from (Path(f"{module}.py"), module / "__main__.py")

    def environment_here(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the step's environment on this element."""
        kept = {name: value for name, value in environment.items() if name not in self.removed}
        return kept | dict(self.changed)


def unpacked(text: str) -> Command:
    """Read what ``packed`` made. Raises ValueError."""
    reader = zlib.decompressobj()
    try:
        found = json.loads(reader.decompress(base64.b64decode(text, validate=True), MAX_STEP + 1))
        words, folder, changed, removed, job, node, mark, limits, umask, stdin = found
        texts = [*words, folder, *changed, *changed.values(), *removed, job, node, mark, stdin]
        numbers = [*limits.values(), umask]
    except (zlib.error, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("not a step") from error
    if not words or not all(isinstance(one, str) and "\0" not in one for one in texts):
        raise ValueError("not a step")
    if not all(isinstance(one, int) for one in numbers):
        raise ValueError("not a step")
    inherited = Inherited(limits, umask, stdin)
    return Command(tuple(words), folder, changed, tuple(removed), job, node, mark, inherited)


def command_of(pid: int, before: Mapping[str, str]) -> Command:
    """Return what a running srun is; ``before`` was the script's environment. Raises OSError."""
    process = Path(f"/proc/{pid}")
    words = _texts(process / "cmdline")
    words[0] = str((process / "exe").readlink())
    now = dict(one.split("=", 1) for one in _texts(process / "environ") if "=" in one)
    inherited = inherited_by(pid, MAX_STEP)
    same = _NUMBERS.sub("0", repr(words)) + inherited.stdin
    mark = hashlib.sha256(same.encode()).hexdigest()[:16]
    return Command(
        tuple(words),
        str((process / "cwd").readlink()),
        {name: value for name, value in now.items() if before.get(name) != value},
        tuple(name for name in before if name not in now and name != SOCKET),
        before.get("SLURM_JOB_ID", ""),
        before.get("SLURMD_NODENAME", ""),
        mark,
        inherited,
    )


def _texts(path: Path) -> list[str]:
    return [os.fsdecode(one) for one in path.read_bytes().split(b"\0")[:-1]]


@dataclass(slots=True)
class _Running:
    """A step that runs here. Until it is known to train, it is nobody else's business.

    It is ``beside`` if another one trained as it began. It has none of our variables, and runs as
    in an ordinary job of one node: two trainings in one group would be a third one.
    """

    command: Command
    trains: bool
    beside: bool
    over: bool = False


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
        self._running: dict[int, _Running] = {}
        self._done = {number: (code, mark) for number, code, mark in done}
        self._beside = False  # whether steps have run at the same time
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

    def trains(self, number: int) -> None:
        """A process of this step takes part in the training: the other elements start it too."""
        with self._lock:
            if number in self._running and not self._running[number].beside:
                self._running[number].trains = True
                self._tell()

    def _tell(self) -> None:
        if self.reclaimed.is_set():  # what the script does now, it does again on another node
            return
        trainings = [number for number, one in self._running.items() if one.trains]
        number = max(trainings or self._running, default=-1)
        done: tuple[Step, ...] = ()
        if not self._beside:
            done = tuple((one, *rest) for one, rest in sorted(self._done.items())[:MAX_STEPS])
        what = ""
        trains = number >= 0 and self._running[number].trains
        if trains and not (what := self._running[number].command.packed()):
            number, trains = -1, False  # too long: the script runs on each node
        self._say(Batch("leads", number, trains, what, done, beside=self._beside))

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
        command = command_of(pid, self._before)
        with self._lock:
            number, self._count = self._count, self._count + 1
            code, done = self._done.get(number, (0, ""))
            beside = any(one.trains and not one.over for one in self._running.values())
            if done != command.mark:
                self._done.pop(number, None)
                trains = not beside and command.surely_trains(self._before)
                self._running[number] = _Running(command, trains, beside)
                if beside and not self._beside:
                    self._beside = True
                    say(_BESIDE.format(command.node))
                self._tell()
        if done == command.mark:
            say(f"step {number} is done, with exit code {code}: it does not run again")
            connection.sendall(b"exit %d\n" % code)
            return
        connection.sendall(b"go %d%s\n" % (number, b" beside" if beside else b""))
        self._end(number, connection.recv(16))

    def _end(self, number: int, said: bytes) -> None:
        """An srun has ended. One that failed may have been killed: then it is not done."""
        code = int(said) & 255 if said.strip().isdigit() else None
        self._running[number].over = True
        if code != 0:
            self.failed_s = time.monotonic()
            if self.reclaimed.wait(RECLAIM_S):
                return
        with self._lock:
            ended = self._running.pop(number)
            if ended.trains and code is not None:
                self._done[number] = (code, ended.command.mark)
            self._tell()
