"""Trainers under torchrun with our rendezvous: their nodes come and go, their script is plain."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.processes import processes_with
from bftrainer_slurm.keeper.home import find_or_start
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from scripts.labcluster.keeper import Keeper, started_keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import ARRAY, Agents, started_agents

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    """A trainer that goes on from one test to the next: ``fleet.of(3)`` trains on three nodes."""
    folder = tmp_path_factory.mktemp("fleet")
    with started_keeper(folder) as keeper, started_agents(keeper, folder / "trainer") as running:
        yield running


@pytest.fixture
def agents(keeper: Keeper, tmp_path: Path) -> Iterator[Agents]:
    with started_agents(keeper, tmp_path / "trainer") as running:
        yield running


def notes(keeper: Keeper, kind: NoteKind) -> Iterator[Note]:
    return (
        numbered.note
        for _, numbered in keeper.client.watch("", 0)
        if numbered is not None and numbered.note.kind is kind
    )


def gone(process: int) -> bool:
    return not Path(f"/proc/{process}").exists()


def test_a_node_joins_and_that_is_reported_and_one_line_in_the_log_of_the_first_node(
    fleet: Agents,
) -> None:
    first, second = fleet.of(2)
    for task in (first, second):
        fleet.wait_for_steps(task)  # a speed takes two
    before = [len(fleet.pauses(task)) for task in (first, second)]
    tasks = fleet.of(3)
    assert [len(fleet.pauses(task)) for task in (first, second)] == [one + 1 for one in before]
    fleet.wait_for_steps(first)
    reported = map(dict, (note.measures for note in notes(fleet.keeper, NoteKind.PROGRESS)))
    after = next(measures for measures in reported if measures["nodes"] == 3)
    assert min(after["steps"], after["generation"], after["pause_s"]) > 0
    assert "samples" not in after, "the script does not say them"
    fleet.of(2)
    speed, stood = r"[\d.,e+]+ steps/s", r"training stood still for \d+\.\d s"
    said = rf"^bftrainer: n{tasks[2]} came: 3 nodes; {stood}; {speed} before, {speed} now$"

    def lines() -> list[str]:
        return re.findall(said, "".join(map(fleet.log, tasks)), re.MULTILINE)

    wait_until(lines)
    assert len(lines()) == 1


def test_nodes_may_run_different_numbers_of_processes(fleet: Agents) -> None:
    first, second = fleet.of(2)
    fleet.own(3)
    fleet.start(wide := second + 10, PET_NPROC_PER_NODE="2")
    fleet.wait_for_world(4, first, second, wide)
    fleet.kill(wide)
    fleet.wait_for_world(2, first, second)


@pytest.mark.once
def test_each_node_is_lost_but_the_last_and_an_agent_alone_takes_its_workers_along(
    fleet: Agents,
) -> None:
    first, second, last = fleet.of(3)
    fleet.kill(first)
    fleet.wait_for_world(2, second, last)
    worker = fleet.steps(second)[-1].process
    fleet.signal(second, signal.SIGKILL)
    fleet.wait_for_world(1, last)
    wait_until(lambda: gone(worker))


def test_an_agent_that_is_told_to_end_leaves_at_once(fleet: Agents) -> None:
    first, told = fleet.of(2)
    worker = fleet.steps(told)[-1].process
    fleet.signal(told, signal.SIGTERM)
    fleet.wait_for_world(1, first)
    assert fleet.processes[told].wait(120) != 0
    wait_until(lambda: gone(worker))
    said = f"bftrainer: n{told} is given back to an ordinary job, unless somebody cancelled this"
    assert fleet.log(told).count(f"{said} one; this is no failure\n") == 1


def test_a_node_leaves_by_plan_and_each_keeper_hears_it_while_the_others_train_on(
    fleet: Agents,
) -> None:
    first, second, leaves = fleet.of(3)
    fleet.part(leaves)
    fleet.wait_for_world(2, first, second)
    wait_until(lambda: gone(fleet.steps(leaves)[-1].process))
    said = f"bftrainer: n{leaves} is given back as the plan says; this is no failure\n"
    wait_until(lambda: said in fleet.log(leaves))
    assert fleet.processes[leaves].poll() is None, "it is quiet until it is ended"
    processes = [fleet.steps(task)[-1].process for task in (first, second)]
    fleet.keeper.kill()
    fleet.wait_for_steps(first)
    find_or_start(fleet.keeper.state, "127.0.0.1:0")
    fleet.own(2)
    left = next(notes(fleet.keeper, NoteKind.LEFT))
    assert left == Note(NoteKind.LEFT, ARRAY, leaves, f"n{leaves}")
    fleet.signal(leaves, signal.SIGTERM)
    assert fleet.processes[leaves].wait(120) != 0
    fleet.wait_for_steps(first, 25)
    assert [fleet.steps(task)[-1].process for task in (first, second)] == processes
    assert fleet.of(3)[:2] == [first, second]


def test_the_node_whose_script_fails_is_told_and_not_those_that_fail_of_it(fleet: Agents) -> None:
    _, fails, _ = fleet.of(3)
    (marker := fleet.folder / f"fail.n{fails}").touch()
    failed = next(notes(fleet.keeper, NoteKind.FAILED))
    marker.unlink()
    assert (failed.node, failed.text.splitlines()[-1]) == (f"n{fails}", "ValueError: no such data")


@pytest.mark.once
def test_the_end_of_a_training_is_that_of_all_its_nodes(agents: Agents) -> None:
    agents.train_on(1, 2)
    workers = [agents.steps(task)[-1].process for task in (1, 2)]
    stop, saving = agents.folder / "stop", agents.folder / "saving"
    saving.touch()
    stop.touch()
    wait_until(lambda: any(map(gone, workers)))  # an agent has noticed
    agents.start(3)
    assert agents.processes[3].wait(120) == 0, "it leaves the one alone that saves the result"
    assert [agents.processes[task].poll() for task in (1, 2)] == [None, None]
    saving.unlink()
    assert [agents.processes[task].wait(120) for task in (1, 2)] == [0, 0]
    assert [agents.steps(task)[-1].process for task in (1, 2)] == workers
    stop.unlink()
    agents.start(4)
    assert agents.processes[4].wait(120) == 0, "it comes late"
    for task in (3, 4):
        said = f"bftrainer: this training has finished: n{task} has nothing left to do\n"
        assert (agents.log(task).count(said), agents.steps(task)) == (1, [])
    agents.start(1, 2)  # a batch script may run the same script again
    for task in (1, 2):
        agents.wait_for_steps(task)
    workers = [agents.steps(task)[-1].process for task in (1, 2)]
    saving.touch()
    stop.touch()
    wait_until(lambda: any(map(gone, workers)))
    saves = next(task for task, worker in zip((1, 2), workers, strict=True) if not gone(worker))
    agents.kill(saves)
    assert agents.processes[3 - saves].wait(120) == 0, "nobody waits for it"


def test_a_script_that_hangs_at_sigterm_or_ends_well_holds_nobody(agents: Agents) -> None:
    """torchrun itself ends it after 30 s, and its grace may be longer."""
    agents.own(3)
    agents.start(1, AT_SIGTERM="hangs")
    agents.wait_for_world(1, 1)
    agents.start(2, 3, AT_SIGTERM="exits", BFTRAINER_GRACE="3000")
    agents.wait_for_world(3, 1, 2, 3)
    assert agents.pauses(1)[-1] < 25
    agents.signal_all(2, signal.SIGTERM)
    assert agents.processes[2].wait(120) != 0
    agents.wait_for_world(2, 1, 3)
    assert max(agents.pauses(task)[-1] for task in (1, 3)) < 25


@pytest.mark.once
def test_what_a_script_has_started_does_not_add_up_on_nodes_that_stay(agents: Agents) -> None:
    """Whether its worker is forked, as on n1, or a program of its own, as on n2."""

    def helpers(node: int) -> set[int]:
        return {*processes_with(f"HELPS={agents.folder}", f"SLURMD_NODENAME=n{node}")}

    try:
        agents.own(3)
        agents.start(1, 3, HAS_HELPERS="yes")
        python = sys.executable.replace("/bin/", "/bin//")
        agents.start(2, HAS_HELPERS="yes", PYTHON_EXEC=python)
        agents.wait_for_world(3, 1, 2, 3)
        before = helpers(1) | helpers(2)
        assert len(before) == 4
        agents.kill(3)
        agents.wait_for_world(2, 1, 2)
        wait_until(lambda: not before & (helpers(1) | helpers(2)))
        assert [len(helpers(node)) for node in (1, 2)] == [2, 2]
    finally:
        for one in set().union(*map(helpers, (1, 2, 3))):  # they would outlive their trainer
            os.kill(one, signal.SIGKILL)
