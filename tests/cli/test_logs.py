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
from bftrainer_slurm.slurm.outputs import Output, outputs_in
from tests.cli.documented import differences
from tests.tools import program

# As `scontrol --oneliner show job` of 22.05.8 prints, shortened.
RECORD = (
    "JobId=71 ArrayJobId=70 ArrayTaskId={task} JobName=x UserId=alice(1001) JobState={state} "
    "StartTime={start} Partition=bftrainer NodeList={node} BatchHost=n2 WorkDir={folder} "
    "Comment=bftrainer:min=1,max=2  StdErr={folder}/{file} StdIn=/dev/null StdOut={folder}/{file} "
    "Power= "
)
LOST = "ON n1 CANCELLED AT 2026-11-23T20:30:11 DUE TO PREEMPTION ***"
# What an element has written that was reclaimed on n1, and runs on n3 now (Slurm 22.05.8).
MOVED = f"""\
start n1
W1123 20:30:07.327000 34 torch/distributed/elastic/agent/server/api.py:753] hello
seen=1152 world=2
slurmstepd-n1: error: *** STEP 37000002.0 {LOST}
slurmstepd-n1: error: *** JOB 37000002 {LOST}
Traceback (most recent call last):
srun: error: n1: task 0: Exited with exit code 1
start n3
2026-11-23T20:35:00 on n3
seen=4711 world=1
""".splitlines()


def record(folder: Path | str, task: str, state: str, node: str = "", file: str = "") -> str:
    start = 1795465802 if state == "RUNNING" else "Unknown"
    name = file or f"slurm-70_{task if task.isdigit() else 4294967294}.out"
    return RECORD.format(task=task, state=state, start=start, node=node, folder=folder, file=name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with logs of two elements, one of which runs, and a scontrol that names them."""
    (tmp_path / "jobs").write_text(
        f"{record(tmp_path, '0', 'RUNNING', 'n3')}\n{record(tmp_path, '1-3', 'PENDING')}\n"
    )
    program(tmp_path, "scontrol", f"exec cat {tmp_path}/jobs")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slurm-70_0.out").write_text("late\nno end")
    (tmp_path / "slurm-70_1.out").write_text("early\n")
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["logs", *arguments])


def test_the_elements_files_come_one_after_the_other(folder: Path) -> None:
    assert call("70").stdout.splitlines() == [
        "n3       late",
        "n3       no end",
        "#1       early",
    ]


def test_the_last_lines_only(folder: Path) -> None:
    assert call("70", "-n", "1").stdout.splitlines() == ["n3       no end", "#1       early"]
    assert call("70", "-n", "0").stdout == ""


def test_json_has_an_object_a_line(folder: Path) -> None:
    found = [json.loads(line) for line in call("70", "--json").stdout.splitlines()]
    assert [(one["node"], one["task"]) for one in found] == [("n3", 0), ("n3", 0), (None, 1)]
    assert found[0]["text"] == "late"
    assert differences("logs", *found) == []


def test_follow_ends_when_all_elements_are_over(folder: Path) -> None:
    (folder / "jobs").write_text(record(folder, "0", "COMPLETED", "n3"))
    shown = call("70", "--follow").stdout.splitlines()
    assert shown == ["n3       late", "n3       no end"]


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


def test_the_node_is_that_on_which_the_line_was_written() -> None:
    lines = command._with_nodes(MOVED, Output(0, (), "n3"))
    assert [line.node for line in lines] == ["n1"] * 7 + ["n3"] * 3
    assert [line.text for line in lines] == MOVED


def test_a_step_that_failed_names_its_node_where_no_element_was_taken_off() -> None:
    failed = (
        *("begins", "srun: error: n1: task 0: Exited with exit code 2"),
        *("slurmstepd-n1: error: execve(): torchrun: No such file or directory", "begins again"),
    )
    lines = command._with_nodes(failed, Output(0, (), "n5"))
    assert [line.node for line in lines] == ["n1", "n1", "n1", "n5"]


def test_slurm_names_the_node_also_where_its_daemon_does_not() -> None:
    lost = "slurmstepd: error: *** JOB 7 ON n2 CANCELLED AT 2026-11-23T20:30:11 DUE TO PREEMPTION"
    lines = command._with_nodes(("begins", lost, "begins again"), Output(0, (), "n5"))
    assert [line.node for line in lines] == ["n2", "n2", "n5"]


def test_what_slurm_has_forgotten_is_found_by_the_usual_names(folder: Path) -> None:
    program(folder, "scontrol", "echo Invalid job id specified >&2\nexit 1")
    assert len(call("70").stdout.splitlines()) == 3
    refused = call("71")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "no slurm-71_*.out in this folder" in refused.stderr


def test_a_file_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "slurm-70_0.out").unlink()
    os.mkfifo(folder / "slurm-70_0.out")
    result = call("70")
    assert "early" in result.stdout
    assert "slurm-70_0.out: not a plain file" in result.stderr


def test_where_nothing_can_be_read_that_is_the_error(folder: Path) -> None:
    for name in ("slurm-70_0.out", "slurm-70_1.out"):
        (folder / name).unlink()
        (folder / name).mkdir()
    assert call("70").exit_code == 3


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


def test_what_slurm_says_of_elements_is_read() -> None:
    said = f"{record('/home/a b', '0', 'RUNNING', 'n3')}\n{record('/home/a b', '1-2', 'PENDING')}"
    running, *waiting = outputs_in(said)
    path = Path("/home/a b/slurm-70_0.out")
    assert running == Output(0, (path,), "n3", over=False)
    assert [one.paths[0].name for one in waiting] == ["slurm-70_1.out", "slurm-70_2.out"]


def test_elements_that_share_a_file_are_read_once() -> None:
    (shared,) = outputs_in(
        "\n".join(record("/x", str(t), "RUNNING", f"n{t}", "log") for t in (1, 2))
    )
    assert (shared.task, shared.node, shared.paths) == (None, "", (Path("/x/log"),))


@pytest.mark.parametrize("said", ["", "JobId=7 JobState=RUNNING", record("/x", "many", "RUNNING")])
def test_what_is_no_element_has_no_output(said: str) -> None:
    assert outputs_in(said) == ()


def test_a_line_comes_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.lines() == []  # there is no file yet
    with path.open("ab", buffering=0) as file:
        file.write(b"one\ntw")
        assert tail.lines() == ["one"]
        file.write(b"o\n\xff\n")
        assert tail.lines() == ["two", "\ufffd"]
        assert tail.lines() == []


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


def test_a_file_that_is_begun_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    path.write_text("one\ntwo\n")
    tail.lines()
    path.write_text("new\n")
    assert tail.lines() == ["new"]
