"""The lanes of ``make test``: which test is in which, and what is said when one of them fails."""

from __future__ import annotations

import math
import os
import sys
from itertools import chain, combinations
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until
from scripts.testlanes.command import LANES, chosen, table, why
from scripts.testlanes.run import NO_TEST, Lane, Run, run

MARKS = ("slurm", "torch", "frameworks", "load", "nightly")
SUBSETS = [*chain.from_iterable(combinations(MARKS, size) for size in range(len(MARKS) + 1))]
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root: it makes namespaces")


PASSES = "echo '1 passed in 1.00s'"


def shell(name: str, script: str, alone: bool = False) -> Lane:
    return Lane(name, ("sh", "-c", script), alone)


def done(folder: Path, *of: Lane, at_once: int = 4, within_s: float = math.inf) -> dict[str, Run]:
    return {one.lane.name: one for one in run(of, at_once, folder, print, within_s)}


@pytest.mark.parametrize("marks", SUBSETS, ids=" ".join)
def test_each_test_is_in_just_one_lane_of_this_host(marks: tuple[str, ...]) -> None:
    here = [lane for lane in LANES if lane.tests and not lane.matrix]
    which = [Expression.compile(words) for words in {lane.command[-1] for lane in here}]
    assert sum(one.evaluate(lambda name, **_: name in marks) for one in which) == 1


def test_each_file_is_in_just_one_of_the_lanes_of_the_same_marks() -> None:
    lanes: dict[str, list[Lane]] = {}
    for lane in LANES:
        if lane.tests and not lane.matrix:
            lanes.setdefault(lane.command[-1], []).append(lane)
    for file in (REPO / "tests").rglob("test_*.py"):
        for which, alike in lanes.items():
            assert sum(has(lane, file) for lane in alike) == 1, (which, file)


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)
def test_what_a_lane_names_is_there(lane: Lane) -> None:
    words = [word.removeprefix("--ignore=") for word in lane.command]
    for path, _, test in (word.partition("::") for word in words if word.startswith("tests/")):
        assert (REPO / path).exists(), path
        assert not test or f"def {test}(" in (REPO / path).read_text(), test


def has(lane: Lane, file: Path) -> bool:
    """Whether a lane has the tests of a file, by what it names and what it ignores."""
    named = [REPO / word for word in lane.command if word.startswith("tests/")]
    ignored = [REPO / word[9:] for word in lane.command if word.startswith("--ignore=")]
    among = not named or any(map(file.is_relative_to, named))
    return among and not any(map(file.is_relative_to, ignored))


@pytest.mark.parametrize("suite", ["trixie", "forky"])
@pytest.mark.parametrize("marks", [("slurm",), ("slurm", "torch")], ids=" ".join)
def test_each_test_on_a_newer_slurm_is_in_just_one_of_its_lanes(
    marks: tuple[str, ...], suite: str
) -> None:
    newer = ("scripts/matrix", "--suite", suite)
    lanes = [lane for lane in LANES if lane.nightly and lane.command[:3] == newer]
    which = [Expression.compile(lane.command[4]) for lane in lanes]
    assert sum(one.evaluate(lambda name, **_: name in marks) for one in which) == 1


def names(*words: str, changed: bool = False) -> set[str]:
    return {lane.name for lane in chosen(words, lambda paths: changed)}


def test_each_lane_is_of_each_change_or_nightly() -> None:
    """Packages are of each change while what makes them is new; no word is this system alone."""
    assert names("change") | names("nightly") == names("all") == {lane.name for lane in LANES}
    assert not names("change") & names("nightly")
    assert all(names(lane.name) == {lane.name} for lane in LANES)
    assert names("change", changed=True) - names("change") == {"packages"}
    assert names("change") - names() == {"newest"}


def test_a_lane_that_fails_says_so_and_the_others_go_on(tmp_path: Path) -> None:
    runs = done(
        tmp_path,
        shell("bad", "echo why; echo '2 failed, 3 passed, 1 error in 0.12s'; exit 7"),
        shell("good", "sleep 1; echo '40 passed, 2 skipped in 65.12s (0:01:05)'"),
    )
    assert (runs["bad"].code, runs["good"].code) == (7, 0)
    assert runs["bad"].text.startswith("why\n")
    last = table(list(runs.values()), 61.0).splitlines()[-1]
    assert last == "43 passed, 3 failed, 2 skipped in 1:01"


FAILING = """
import pytest

@pytest.fixture
def broken():
    raise KeyError("fixture")

def test_first():
    print("noise\\n" * 200)
    assert 1 == 2, "numbers"

@pytest.mark.parametrize("text", ["long" * 40])
def test_second(text):
    raise TimeoutError("slow")

def test_third(broken):
    pass
"""


def test_why_each_test_failed_is_told_in_few_lines(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILING)
    pytest_here = f"cd {tmp_path}; {sys.executable} -m pytest -q -p no:cacheprovider test_it.py"
    runs = done(
        tmp_path,
        shell("tests", pytest_here),
        shell("other", "seq 100; exit 3"),
        shell("good", PASSES),
    )
    [other] = why([runs["other"], runs["good"]])
    assert other.splitlines() == ["==== why other failed", *map(str, range(41, 101))]
    third, first, second = why([runs["tests"]])
    assert "E       KeyError: 'fixture'" in third
    assert "test_first" in first
    assert "E       AssertionError: numbers" in first
    assert len(first.splitlines()) < 85
    assert "E       TimeoutError: slow" in second
    assert "slowest" not in second
    assert "short test summary" not in second


@pytest.mark.parametrize("says", ["no tests ran in 0.01s", "3 skipped in 0.10s", ""])
def test_a_lane_in_which_no_test_ran_has_failed(tmp_path: Path, says: str) -> None:
    assert done(tmp_path, shell("empty", f"echo '{says}'"))["empty"].code == NO_TEST


def test_a_lane_that_measures_runs_beside_no_other(tmp_path: Path) -> None:
    one = shell("one", f"cd {tmp_path}; touch busy; sleep 1; rm busy; {PASSES}")
    load = shell("load", f"cd {tmp_path}; test -e busy && echo disturbed; {PASSES}", alone=True)
    assert done(tmp_path, one, load)["load"].text == "1 passed in 1.00s\n"


@as_root
def test_lanes_have_processes_and_ports_of_their_own(tmp_path: Path) -> None:
    listens = "import os, socket, time; socket.create_server(('', 6740)); time.sleep(1)"
    listens += "; print(sum(name.isdigit() for name in os.listdir('/proc')), 'passed in 1.00s')"
    apart = ("scripts/apart", sys.executable, "-c", listens)
    runs = done(tmp_path, Lane("a", apart), Lane("b", apart))
    assert [one.code for one in runs.values()] == [0, 0]
    assert [one.counts["passed"] for one in runs.values()] == [2, 2]  # and bash, which buries


@as_root
def test_the_processor_time_of_those_that_nobody_waits_for_counts(tmp_path: Path) -> None:
    spins = "import time\nwhile time.process_time() < 1: pass\nopen('done', 'w').close()"
    leaves = f'cd {tmp_path}; setsid {sys.executable} -c "{spins}" & '
    leaves += f"while [ ! -e {tmp_path}/done ]; do sleep 0.1; done; {PASSES}"
    assert done(tmp_path, shell("leaves", leaves))["leaves"].processor_s >= 1


@as_root
def test_a_lane_that_takes_too_much_memory_is_ended_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.testlanes.run._MEMORY_BYTES", 64 << 20)
    takes = Lane("greedy", (sys.executable, "-c", "b'x' * (256 << 20)"))
    runs = done(tmp_path, takes, shell("modest", f"sleep 1; {PASSES}"))
    assert [bool(one.code) for one in (runs["greedy"], runs["modest"])] == [True, False]


def test_an_interruption_ends_all_lanes(tmp_path: Path) -> None:
    pid, told = tmp_path / "pid", list[str]()

    def tell(text: str) -> None:
        told.append(text)
        if text == "started one":
            wait_until(lambda: pid.exists() and pid.read_text().strip())
            raise KeyboardInterrupt

    ends = f"trap 'echo ended; exit 130' INT; sleep 1000 & echo $! > {pid}; wait"
    with pytest.raises(KeyboardInterrupt):
        run([shell("one", ends)], 1, tmp_path, tell)
    assert told[-1].endswith("\nended\n")
    wait_until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())


def test_lanes_that_hang_have_failed_and_so_have_those_that_wait_for_them(tmp_path: Path) -> None:
    hangs, late = shell("hangs", f"{PASSES}; sleep 1000"), shell("late", f"sleep 5; {PASSES}")
    runs = done(tmp_path, hangs, late, at_once=1, within_s=1.0)
    assert [one.code == 0 for one in runs.values()] == [False, False]
