"""Batch scripts that run once, and their steps on all elements: real ones, with an srun of ours."""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.batch import __file__ as package
from bftrainer_slurm.elastic.batch.inherited import Inherited, inherited_by
from bftrainer_slurm.elastic.batch.meeting import Meeting
from bftrainer_slurm.elastic.batch.script import PATIENCE_S, next_turn
from bftrainer_slurm.elastic.batch.steps import (
    MAX_STEP,
    SOCKET,
    Command,
    Steps,
    unpacked,
)
from bftrainer_slurm.keeper.client import KeeperError
from bftrainer_slurm.keeper.home import find_or_start
from bftrainer_slurm.keeper.membership import Membership
from bftrainer_slurm.keeper.messages import Batch, Identity, Role, Turn
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import keeper_inside, secret_for
from tests.slurm_plugin.fake_keeper import FakeKeeper

START = Path(package).with_name("start")

# What the SPANK plugin does in an srun, and then the step itself.
SRUN = f"""#!{sys.executable} -IS
import os, signal, socket, subprocess, sys
name, listener = os.environ.get("BFTRAINER_SRUNS"), None
if name and "BFTRAINER_STEP" not in os.environ:
    listener = socket.socket(socket.AF_UNIX)
    listener.connect(chr(0) + name)
    word, number = listener.recv(32).split()
    if word == b"exit":
        sys.exit(int(number))
    os.environ["BFTRAINER_STEP"] = number.decode()
code = subprocess.run(sys.argv[1:]).returncode
code = code if code >= 0 else 128 - code
if listener is not None:
    listener.send(b"%d" % code)
sys.exit(code)
"""

# A step that trains, as torchrun does. It lasts until a file is there, and ends with what is in it.
TORCHRUN = f"""#!{sys.executable} -S
import os, sys, time
sys.path.insert(0, {str(Path(package).parents[3])!r})
from bftrainer_slurm.elastic.place import read_identity
from bftrainer_slurm.elastic.rendezvous.only_launcher import trains_beside
from bftrainer_slurm.keeper.membership import Membership
from bftrainer_slurm.keeper.messages import Role
name, *how = sys.argv[1:]
node = os.environ["NODE"]
if "unnumbered" in how:
    os.environ["SLURM_STEP_ID"] = os.environ.pop("BFTRAINER_STEP")
alone = "unasked" not in how and trains_beside(os.environ)
if not alone:
    who = read_identity(os.environ, Role.AGENT)
    secret = os.environ["BFTRAINER_JOB_SECRET"].encode()
    agent = Membership(os.environ["BFTRAINER_KEEPER"], who, secret)
    agent.start()
step = "alone" if alone else os.environ.get("BFTRAINER_STEP")
with open("notes", "a") as notes:
    print("step", name, node, step, os.environ.get("WORD", ""), os.getcwd(), file=notes)
ends = "end." + name, "end." + name + "." + node
while not (end := [one for one in ends if os.path.exists(one)]):
    time.sleep(0.05)
code = int(open(end[-1]).read())
if not alone:
    agent.close() if code else agent.done()
sys.exit(code)
"""

SCRIPT = """
note() { echo "$* $NODE" >> notes; }
note begun "$1"
export WORD=of-$NODE
[ "$(srun echo torchrun)" = torchrun ] && note said
srun ./torchrun one; note one $?
srun ./torchrun two; note two $?
note done
exit 7
"""


class Trainer:
    """Trainer 7, in a folder of its own."""

    def __init__(self, folder: Path, keeper: Keeper) -> None:
        self.folder = folder
        self.keeper = keeper
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        (folder / "bin").mkdir()
        self.write("torchrun", TORCHRUN)
        self.write("bin/srun", SRUN)
        self.script(SCRIPT)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def script(self, text: str) -> None:
        self.write("script", f"#!/bin/bash\n{text}\n")

    def start(self, task: int, address: str = "") -> None:
        environment = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "BFTRAINER_ELEMENT": f"7_{task}",
            "BFTRAINER_KEEPER": address or self.keeper.address,
            "BFTRAINER_JOB_SECRET": self.keeper.secret(7).decode(),
            "BFTRAINER_SCRIPT": f"once quiet {self.folder}/script",
            "SLURMD_NODENAME": f"n{task}",
            "SLURM_JOB_ID": f"10{task}",
            "NODE": f"n{task}",
        }
        with (self.folder / f"log.{task}").open("ab") as log:
            self.running[task] = subprocess.Popen(
                [sys.executable, "-IS", START, "word"],
                env=environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def train(self, *tasks: int) -> None:
        """Start the script's node, and the others when its first step trains."""
        for count, task in enumerate(tasks, 1):
            self.start(task)
            self.wait_for("step one", count)

    def kill(self, task: int) -> None:
        """As the guard does: all of it at once; and the controller tells of it, if it can."""
        os.killpg(self.running[task].pid, signal.SIGKILL)
        self.running.pop(task).wait()
        with contextlib.suppress(KeeperError):
            self.keeper.client.lost(7, task, f"n{task}")

    def codes(self) -> list[int]:
        """What all nodes that run end with."""
        return [self.running.pop(task).wait(120) for task in sorted(self.running)]

    def waits(self, task: int) -> None:
        """Wait until this node waits for what another one runs."""
        wait_until(lambda: "runs on another node" in self.log(task), 120)

    def log(self, task: int) -> str:
        return (self.folder / f"log.{task}").read_text()

    def end(self, step: str, code: int = 0) -> None:
        beside = self.folder / "beside"
        beside.write_text(f"{code}\n")
        beside.rename(self.folder / f"end.{step}")

    def notes(self, kind: str = "") -> list[str]:
        path = self.folder / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(kind)]

    def wait_for(self, kind: str, count: int) -> list[str]:
        wait_until(lambda: len(self.notes(kind)) >= count, 120)
        assert len(self.notes(kind)) == count
        return self.notes(kind)


@pytest.fixture
def trainer(tmp_path: Path, keeper: Keeper) -> Iterator[Trainer]:
    (folder := tmp_path / "trainer").mkdir()
    found = Trainer(folder, keeper)
    yield found
    for task in list(found.running):
        with contextlib.suppress(ProcessLookupError):
            found.kill(task)


def test_the_script_runs_once_and_what_trains_on_all(trainer: Trainer) -> None:
    trainer.train(0, 1, 2)
    steps = sorted(trainer.notes("step one"))
    assert steps == [f"step one n{task} 1 of-n0 {trainer.folder}" for task in range(3)]
    os.kill(trainer.running[1].pid, signal.SIGUSR1)  # for the script, not for its step elsewhere
    trainer.end("one")
    trainer.wait_for("step two", 3)
    trainer.end("two", 5)
    assert trainer.codes() == [7, 7, 7]
    rest = [line for line in trainer.notes() if not line.startswith("step")]
    assert rest == ["begun word n0", "said n0", "one 0 n0", "two 5 n0", "done n0"]


def test_others_go_on_without_the_scripts_node_and_then_run_it_whatever_becomes_of_the_keeper(
    trainer: Trainer,
) -> None:
    def disturb() -> None:
        address = trainer.keeper.address
        trainer.keeper.kill()
        find_or_start(trainer.keeper.state, address)

    trainer.train(0)
    disturb()
    trainer.start(1)
    trainer.wait_for("step one", 2)
    trainer.kill(0)
    disturb()
    trainer.start(2)
    trainer.wait_for("step one", 3)
    assert len(trainer.notes("begun")) == 1
    trainer.end("one")
    (again,) = trainer.wait_for("one 0", 1)
    assert "step 1 is done, with exit code 0" in trainer.log(int(again[-1]))
    trainer.wait_for("step two", 2)
    disturb()
    trainer.start(0)
    trainer.wait_for("step two", 3)
    trainer.end("two")
    assert trainer.codes() == [7, 7, 7]
    assert (len(trainer.notes("begun")), len(trainer.notes("done"))) == (2, 1)


def test_a_reclaim_ends_neither_the_script_nor_its_step(trainer: Trainer) -> None:
    trainer.script(SCRIPT.replace("note begun", "trap : TERM; note begun"))
    trainer.train(0, 1)
    reclaimed = trainer.running.pop(0)
    os.killpg(reclaimed.pid, signal.SIGTERM)  # srun dies, the script goes on
    trainer.end("two.n0")
    assert reclaimed.wait(120) == 7
    trainer.start(2)
    trainer.wait_for("step one n2", 1)


def test_what_fails_on_one_node_ends_there(trainer: Trainer) -> None:
    trainer.train(0, 1)
    trainer.end("one.n1", 9)
    assert trainer.running.pop(1).wait(120) == 9
    trainer.start(2)
    trainer.wait_for("step one", 3)
    trainer.end("one", 4)
    trainer.wait_for("step two", 2)
    trainer.end("two", 0)
    assert trainer.codes() == [7, 7]
    assert len(trainer.notes("one 4")) == 1


def test_what_fails_without_the_scripts_node_runs_again_with_its_script(trainer: Trainer) -> None:
    """As where a script removes at its end what it made for its training."""
    trainer.train(0, 1, 2)
    trainer.kill(0)
    trainer.end("one", 1)
    trainer.wait_for("begun", 2)
    trainer.wait_for("one 1", 1)
    trainer.wait_for("step one", 5)
    trainer.end("two")
    assert trainer.codes() == [7, 7]


def test_a_script_that_trains_without_srun_runs_on_each_node_that_has_waited_for_that(
    trainer: Trainer,
) -> None:
    """Through signals and without a keeper: its script would remove what the others train on."""
    trainer.script("echo begun $NODE >> notes; sleep 1000")
    trainer.start(0)
    trainer.wait_for("begun n0", 1)
    trainer.start(1)
    trainer.waits(1)
    os.kill(trainer.running[1].pid, signal.SIGUSR1)
    address = trainer.keeper.address
    trainer.keeper.kill()
    with pytest.raises(subprocess.TimeoutExpired):
        trainer.running[1].wait(PATIENCE_S + 5)
    assert trainer.notes() == ["begun n0"]
    find_or_start(trainer.keeper.state, address)
    agent = Membership(address, Identity(7, 0, "n0", Role.AGENT), trainer.keeper.secret(7))
    agent.start()
    try:
        trainer.wait_for("begun n1", 1)
        assert "this script trains without srun: all of it runs on each node" in trainer.log(1)
    finally:
        agent.close()


def test_without_a_word_from_the_keeper_a_node_waits_and_says_so(trainer: Trainer) -> None:
    with FakeKeeper() as silent, silent.unreachable():
        for task, address in enumerate(("127.0.0.1:1", silent.address)):
            trainer.start(task, address)
        said = "the keeper does not say whether the script runs elsewhere; waiting for it"
        wait_until(lambda: all(said in trainer.log(task) for task in (0, 1)), 120)
        assert [one.poll() for one in trainer.running.values()] == [None, None]
    assert trainer.notes() == []


def test_it_ends_as_its_script_does_and_passes_signals_on(trainer: Trainer) -> None:
    wait = "until grep -q heard notes; do sleep 0.05; done"
    trainer.script(f"trap 'echo heard >> notes' USR1; echo on >> notes\n{wait}\nkill -KILL $$")
    trainer.start(0)
    trainer.wait_for("on", 1)
    os.kill(trainer.running[0].pid, signal.SIGUSR1)
    assert trainer.codes() == [-signal.SIGKILL]
    assert trainer.notes("heard") == ["heard"]


def test_a_step_has_the_scripts_limits_umask_and_input_elsewhere(trainer: Trainer) -> None:
    tell = 'echo "step $NODE $(ulimit -Sn) $(umask) $(cat)" >> notes'
    trainer.script(
        "ulimit -Sn 250\numask 027\n"
        f"srun bash -c '{tell}; exec ./torchrun one' <<EOF\n"
        "said by $NODE\nEOF"
    )
    trainer.train(0, 1)
    found = sorted(trainer.notes("step n"))
    assert found == [f"step n{task} 250 0027 said by n0" for task in range(2)]
    trainer.end("one")
    assert trainer.codes() == [0, 0]


# A torchrun that still imports torch, and cannot ask yet.
IMPORTS = f"""#!{sys.executable}
import os, time
with open("notes", "a") as notes:
    print("step one", os.environ["NODE"], file=notes)
while not os.path.exists("end.one"):
    time.sleep(0.05)
"""
PROGRAMS = {
    "bin/torchrun": IMPORTS,
    "go": '#!/bin/sh\nexec ./torchrun one "$@"\n',
    "contained": '#!/bin/sh\nexec unshare --user --mount --pid --fork ./torchrun one "$@"\n',
}


@pytest.mark.parametrize(
    "train",
    ["./go", "./contained", "./go unasked", "./go unasked unnumbered", "torchrun train.py"],
)
def test_the_step_whose_processes_join_is_the_training_whatever_its_name(
    trainer: Trainer, train: str
) -> None:
    for name, text in PROGRAMS.items():
        trainer.write(name, text)
    trainer.script(f"srun {train}")
    trainer.train(0, 1)
    trainer.end("one")
    assert trainer.codes() == [0, 0]


@pytest.mark.parametrize("first", ["the one that trains", "another"])
@pytest.mark.parametrize("how", ["", "unasked"])
def test_of_two_sruns_at_once_the_one_that_trains_runs_elsewhere_too(
    trainer: Trainer, first: str, how: str
) -> None:
    sruns = [f"srun ./torchrun one {how} & wanted=$!", "srun sleep 1000 &"]
    one, other = sruns if first == "the one that trains" else reversed(sruns)
    trainer.script(f"{one}\nsleep 1\n{other}\nsleep 1\necho both >> notes\nwait $wanted\nexit 3")
    trainer.start(0)
    trainer.wait_for("both", 1)
    trainer.start(1)
    trainer.wait_for("step one", 2)
    trainer.end("one")
    assert trainer.codes() == [3, 3]


def test_of_trainings_at_once_one_runs_elsewhere_too_and_no_other_joins_it(
    trainer: Trainer,
) -> None:
    trainer.script(
        "for one in a b c; do srun ./torchrun $one & sleep 1; done\nwait\nsrun ./torchrun after"
    )
    trainer.start(0)
    trainer.wait_for("step", 3)
    trainer.start(1)
    trainer.wait_for("step a n1 0", 1)
    alone = [f"step {one} n0 alone  {trainer.folder}" for one in "bc"]
    assert trainer.notes("step b") + trainer.notes("step c") == alone
    assert trainer.log(0).count("an srun trains already") == 2
    trainer.kill(0)
    trainer.end("a")
    trainer.wait_for("step a n1", 2)  # the script runs again: no number says which one is done
    trainer.wait_for("step c n1 alone", 1)
    for one in "bc":
        trainer.end(one)
    trainer.wait_for("step after n1 3", 1)
    trainer.end("after")
    assert trainer.codes() == [0]


@pytest.mark.parametrize("source", ["file", "pipe", "open pipe", "nothing"])
def test_what_a_process_could_read_is_left_there(tmp_path: Path, source: str) -> None:
    (tmp_path / "file").write_bytes(b"before hello")
    file = (tmp_path / "file").open("rb", buffering=0)
    file.seek(len("before "))
    reader, writer = os.pipe()
    os.write(writer, b"hello")
    stdin = {"file": file.fileno(), "nothing": subprocess.DEVNULL}.get(source, reader)
    child = subprocess.Popen(["sleep", "1000"], stdin=stdin)
    if source != "open pipe":
        os.close(writer)
    try:
        found = base64.b64decode(inherited_by(child.pid, 5).stdin)
        assert found == (b"hello" if source in ("file", "pipe") else b"")
        if source in ("file", "pipe"):
            with pytest.raises(ValueError, match="too long"):
                inherited_by(child.pid, 4)
        assert (file.read(9), os.read(reader, 9)) == (b"hello", b"hello")
    finally:
        child.kill()
        child.wait()


def run(words: Sequence[Path | str], given: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=given, capture_output=True, errors="replace", umask=0o27)


Started = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def started(tmp_path: Path) -> Started:
    """Starts a script as on each node, with nothing in its environment but what is given."""

    def started(text: str, **given: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "a script"
        script.write_text(text)
        script.chmod(0o755)
        return run(
            [START, "one word", "\udcff"], given | {"BFTRAINER_SCRIPT": f"any tell {script}"}
        )

    return started


@pytest.mark.parametrize("given", [{}, {"LC_CTYPE": "C"}, {"LC_ALL": "C", "A": "\udcfe\n b"}])
def test_a_script_that_runs_on_each_node_has_what_it_had_without_us(
    started: Started, tmp_path: Path, given: dict[str, str]
) -> None:
    show = "grep -E '^(Sig[BIC]|Umask|Name)' /proc/self/status; ls /proc/self/fd"
    ours = started(f'#!/bin/sh -u\necho "$0|$@|$-"\n{show}\n/usr/bin/env -0 | od -c\n', **given)
    plain = run([tmp_path / "a script", "one word", "\udcff"], given)
    assert ours.stdout == plain.stdout != ""
    assert ours.stderr == "bftrainer: this script has no srun: all of it runs on each node\n"


def test_one_that_cannot_be_run_ends_with_a_line(started: Started, tmp_path: Path) -> None:
    done = started("#!/nowhere/bash\n")
    assert done.returncode == errno.ENOENT
    said = f"bftrainer: {tmp_path}/a script cannot be run: No such file or directory"
    assert done.stderr.splitlines()[-1] == said


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-"])
def test_it_runs_where_nothing_can_be_said(tmp_path: Path, where: str) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexport PYTHONPATH=src\necho ran\n")
    script.chmod(0o755)
    words = f"BFTRAINER_SCRIPT='any tell {script}' {START} {where}"
    assert run(["/bin/sh", "-c", words], {}).stdout == "ran\n"


@pytest.mark.parametrize(
    ("lacks", "how", "said"),
    [
        ("a newer Python", "any tell", "Python is older than 3.10: all of the script"),
        ("a newer Python", "any quiet", ""),
        ("our package", "once quiet", "the script runs on each node"),
    ],
)
def test_a_node_that_lacks_something_runs_the_script(
    tmp_path: Path, lacks: str, how: str, said: str
) -> None:
    folder = tmp_path / "a" / "b" / "c" / "d"
    folder.mkdir(parents=True)
    start, text = folder / "start", START.read_text()
    start.write_text(text.replace("OLDEST = (3, 10)", "OLDEST = (4, 0)") if "Py" in lacks else text)
    given = {"BFTRAINER_SCRIPT": f"{how} /bin/echo", "BFTRAINER_KEEPER": "127.0.0.1:1"}
    done = run([sys.executable, "-IS", start, "ran"], given)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert said in done.stderr if said else done.stderr == ""


def test_where_no_thread_can_be_started_an_srun_goes_on_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    environment: dict[str, str] = {}
    Steps(environment, (), lambda _: None)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(2):  # what serves the next ones has not ended
        with socket.socket(socket.AF_UNIX) as srun:
            srun.settimeout(60)
            srun.connect(f"\0{environment[SOCKET]}")
            assert srun.recv(16) == b""


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    """That of an element whose keeper has nothing for it to do."""
    with keeper_inside() as keeper:
        address, secret = keeper.client.address, secret_for(7).decode()
        element = {"BFTRAINER_ELEMENT": "7_0", "BFTRAINER_JOB_SECRET": secret}
        yield (found := Meeting({"BFTRAINER_KEEPER": address} | element))
        found.end(Batch("over"), 0.0)


def test_who_can_hear_the_keeper_no_more_does_not_wait_for_its_word(
    monkeypatch: pytest.MonkeyPatch, meeting: Meeting
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(Meeting, "_on_message", fail)
    wait_until(lambda: not meeting.listens, 120)


@pytest.mark.parametrize("doing", ["steps", "waits"], ids=["in a step", "after it"])
def test_a_script_that_is_over_is_over_whatever_a_node_whose_step_failed_hears_next(
    meeting: Meeting, doing: str
) -> None:
    meeting.say(Batch(doing))
    meeting._on_message(Turn("over", code=7))
    if doing == "steps":
        meeting.say(Batch("waits"))
    meeting._on_message(Turn("wait"))
    assert next_turn(meeting, [], 5) == Turn("over", code=7)


def test_a_step_is_the_same_elsewhere_but_for_its_place() -> None:
    there = ["/nowhere/env", "-w", "n1", "--jobid=10", "--jobid", "10", "--nodelist=n1", "n1"]
    changed, inherited = {"A": "1\n\udcff"}, Inherited({"RLIMIT_NOFILE": 512}, 0o27, "aGVsbG8=")
    command = Command(there, "/tmp", changed, ["B"], "10", "n1", "ab", inherited)
    here = {"SLURM_JOB_ID": "12", "SLURMD_NODENAME": "n2", "B": "2", "C": "3"}
    step = unpacked(command.packed())
    assert step == command
    program, *words = step.words_here(here)
    assert words == ["-w", "n2", "--jobid=12", "--jobid", "12", "--nodelist=n2", "n1"]
    assert Path(program).is_file()
    assert step.environment_here(here) == {k: here[k] for k in here if k != "B"} | changed
    for too_long in ("x" * MAX_STEP, os.urandom(90_000).hex()):
        assert replace(command, changed={"A": too_long}).packed() == ""
