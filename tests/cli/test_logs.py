"""``bftrainer logs``: the files that Slurm names, as a user reads them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bftrainer_slurm.cli import logs as command
from bftrainer_slurm.cli import main
from bftrainer_slurm.cli.tail import Tail
from bftrainer_slurm.slurm.outputs import Output
from tests.approved import approve_commands
from tests.cli.documented import differences
from tests.tools import program

# As `scontrol --oneliner show job` of 22.05.8 prints, shortened.
RECORD = (
    "JobId=71 ArrayJobId=70 ArrayTaskId={task} JobName=x UserId=alice(1001) JobState={state} "
    "StartTime={start} Partition=bftrainer NodeList={node} BatchHost=n2 WorkDir={folder} "
    "Comment=bftrainer:min=1,max=2  StdErr={folder}/{file} StdIn=/dev/null StdOut={folder}/{file} "
    "Power= "
)
LOST = "ON n1 CANCELLED AT 2026-11-23T20:30:11 DUE TO PREEMPTION"
# What an element has written that was reclaimed on n1, and runs on n3 now (Slurm 22.05.8).
MOVED = f"""\
start n1
W1123 20:30:07.327000 34 torch/distributed/elastic/agent/server/api.py:753] hello
seen=1152 world=2
slurmstepd-n1: error: *** STEP 37000002.0 {LOST} ***
slurmstepd-n1: error: *** JOB 37000002 {LOST} ***
Traceback (most recent call last):
srun: error: n1: task 0: Exited with exit code 1
start n3
2026-11-23T20:35:00 on n3
seen=4711 world=1
"""
FAILED_STEP = """\
begins
srun: error: n1: task 0: Exited with exit code 2
slurmstepd-n1: error: execve(): torchrun: No such file or directory
begins again
"""
BY_SLURM = f"begins\nslurmstepd: error: *** JOB 7 {LOST}\nbegins again\n"


def record(task: str, state: str, node: str = "", file: str = "") -> str:
    start = 1795465802 if state == "RUNNING" else "Unknown"
    name = file or f"slurm-70_{task if task.isdigit() else 4294967294}.out"
    return RECORD.format(
        folder=Path.cwd(), task=task, state=state, start=start, node=node, file=name
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with logs, and a scontrol that knows the jobs that have a file ``jobs-ID``."""
    program(tmp_path, "scontrol", 'for last; do :; done; exec cat "${0%/*}/jobs-$last"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    jobs = {
        "70": (record("0", "RUNNING", "n3"), record("1-3", "PENDING")),
        "72": (record("0", "COMPLETED", "n3"),),
        "73": (record("0", "RUNNING", "n3", "pipe"), record("1", "PENDING")),
        "74": (record("0", "RUNNING", "n3", "empty"),),
        "77": [record("0", "RUNNING", "n3", name) for name in ("moved", "failed", "by-slurm")],
        "78": [record(task, "RUNNING", f"n{task}", "shared") for task in ("1", "2")],
        "79": ("JobId=79 JobState=RUNNING", record("many", "RUNNING")),
    }
    files = {
        "slurm-70_0.out": "late\nno end",
        "slurm-70_1.out": "early\n",
        "slurm-75_1.out": "of a trainer that Slurm has forgotten\n",
        "shared": "of one of two elements\n",
        "moved": MOVED,
        "failed": FAILED_STEP,
        "by-slurm": BY_SLURM,
        **{f"jobs-{job}": "\n".join(lines) for job, lines in jobs.items()},
    }
    for name, text in files.items():
        Path(name).write_text(text)
    os.mkfifo("pipe")
    Path("empty").mkdir()
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["logs", *arguments])


def test_what_elements_have_written_is_printed_as_approved(folder: Path) -> None:
    approve_commands(Path(__file__).parent / "screens" / "logs.txt")


def test_a_file_that_cannot_be_read_is_named_and_an_error_where_there_is_no_other(
    folder: Path,
) -> None:
    result = call("73")
    assert "early" in result.stdout
    assert "pipe: not a plain file" in result.stderr
    assert call("74").exit_code == 3


def test_json_has_the_documented_keys(folder: Path) -> None:
    found = map(json.loads, call("70", "--json").stdout.splitlines())
    assert differences("logs", *found) == []


def test_what_comes_while_it_follows_is_told_in_the_order_of_its_coming(folder: Path) -> None:
    files = command._Files(command._outputs(70), as_json=False)
    assert files.print_written(None, last=False)
    assert files.new_lines() == []
    with (folder / "slurm-70_0.out").open("a") as file:
        file.write(" now\nmore\n")
    (folder / "slurm-70_2.out").write_text("of an element that has not run yet\n")
    assert [(line.node, line.text) for line in files.new_lines()] == [
        ("n3", "no end now"),
        ("n3", "more"),
    ]
    files.update([Output(2, (folder / "slurm-70_2.out",), "n4")])
    assert [line.node for line in files.new_lines()] == ["n4"]


def test_hostile_lines_are_harmless_in_a_terminal_and_whole_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = command.Line("n1", 0, "50%\r100%\x1b[2Jdone\tnow \u202e")
    assert "\x1b" in command._as_text(line)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    shown = command._as_text(line)
    assert shown.isprintable()
    assert shown.split() == ["n1", "100%?[2Jdone", "now", "?"]


def test_a_line_comes_when_it_is_whole_also_of_a_file_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.lines() == []  # there is no file yet
    with path.open("ab", buffering=0) as file:
        file.write(b"one\ntw")
        assert tail.lines() == ["one"]
        file.write(b"o\n\xff\n")
        assert tail.lines() == ["two", "\ufffd"]
        assert tail.lines() == []
    path.write_text("new\n")
    assert tail.lines() == ["new"]


def test_of_a_line_without_an_end_only_the_last_part_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bftrainer_slurm.cli.tail._MOST_BYTES", 8)
    path = tmp_path / "log"
    tail = Tail(path)
    with path.open("ab", buffering=0) as file:
        for _ in range(4):  # a bar of progress writes \r, never \n
            file.write(b"12345\r")
            assert tail.lines() == []
        file.write(b"end\n")
    (line,) = tail.lines()
    assert line.endswith("end")
    assert len(line) < 8
    path.write_text("lost\npart\nlast\n")  # nobody knows where the first line in its end began
    assert Tail(path).lines() == ["last"]
