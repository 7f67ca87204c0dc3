"""Trainers under torchrun with our rendezvous: their nodes come and go, their script is plain."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.elastic import torch_private
from bftrainer_slurm.keeper.home import find_or_start
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from bftrainer_slurm.sizes import Sizes
from scripts.labcluster.c10d import C10dStore
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import ARRAY, Agents, started_agents

pytestmark = pytest.mark.torch


@pytest.fixture
def agents(keeper: Keeper, tmp_path: Path) -> Iterator[Agents]:
    with started_agents(keeper, tmp_path / "trainer") as running:
        yield running


@pytest.fixture
def pair(agents: Agents) -> Agents:
    """A trainer that trains on n1 and n2."""
    agents.train_on(1, 2)
    return agents


@pytest.fixture
def trio(agents: Agents) -> Agents:
    """A trainer that trains on n1, n2 and n3."""
    agents.train_on(1, 2, 3)
    return agents


def notes(keeper: Keeper, kind: NoteKind) -> Iterator[Note]:
    return (
        numbered.note
        for _, numbered in keeper.client.watch("", 0)
        if numbered is not None and numbered.note.kind is kind
    )


def test_a_node_joins(pair: Agents) -> None:
    pair.start(3)
    pair.wait_for_world(3, 1, 2, 3)
    pair.print_pauses("join", 1, 2)
    assert all(len(pair.pauses(task)) == 1 for task in (1, 2))


@pytest.mark.once
def test_each_node_is_lost_but_the_last(trio: Agents) -> None:
    trio.kill(1)
    trio.wait_for_world(2, 2, 3)
    trio.kill(2)
    trio.wait_for_world(1, 3)


@pytest.mark.once
def test_a_node_that_comes_when_the_training_has_finished_ends_well_and_begins_nothing(
    pair: Agents,
) -> None:
    pair.folder.joinpath("stop").touch()
    assert [pair.processes[task].wait(120) for task in (1, 2)] == [0, 0]
    pair.folder.joinpath("stop").unlink()
    pair.start(3)
    assert pair.processes[3].wait(120) == 0
    said = "bftrainer: this training has finished: n3 has nothing left to do\n"
    assert pair.log(3).count(said) == 1
    assert not pair.steps(3)


@pytest.mark.once
def test_a_node_that_comes_while_the_last_one_saves_the_result_leaves_it_alone(
    pair: Agents,
) -> None:
    workers = [Path(f"/proc/{pair.steps(task)[-1].process}") for task in (1, 2)]
    pair.folder.joinpath("saving").touch()
    pair.folder.joinpath("stop").touch()
    wait_until(lambda: not all(worker.exists() for worker in workers))  # an agent has noticed
    pair.start(3)
    assert pair.processes[3].wait(120) == 0
    assert [pair.processes[task].poll() for task in (1, 2)] == [None, None]
    pair.folder.joinpath("saving").unlink()
    assert [pair.processes[task].wait(120) for task in (1, 2)] == [0, 0]
    assert all(len({step.process for step in pair.steps(task)}) == 1 for task in (1, 2))


@pytest.mark.once
def test_a_batch_script_may_run_the_same_script_again(pair: Agents) -> None:
    pair.folder.joinpath("stop").touch()
    assert [pair.processes[task].wait(120) for task in (1, 2)] == [0, 0]
    pair.folder.joinpath("stop").unlink()
    pair.start(1, 2)
    pair.wait_for_world(2, 1, 2)


def test_the_loss_of_an_agent_alone_ends_its_workers(pair: Agents) -> None:
    worker = pair.steps(2)[-1].process
    pair.signal(2, signal.SIGKILL)
    pair.wait_for_world(1, 1)
    wait_until(lambda: not Path(f"/proc/{worker}").exists())


def test_an_agent_that_is_told_to_end_leaves_at_once(pair: Agents) -> None:
    worker = pair.steps(2)[-1].process
    pair.signal(2, signal.SIGTERM)
    pair.wait_for_world(1, 1)
    pair.print_pauses("SIGTERM", 1)
    assert pair.processes[2].wait(120) != 0
    wait_until(lambda: not Path(f"/proc/{worker}").exists())
    said = "bftrainer: n2 is given back to an ordinary job, unless somebody cancelled this one"
    assert pair.log(2).count(f"{said}; this is no failure\n") == 1


def test_a_node_leaves_by_plan_and_is_quiet_until_it_is_ended(trio: Agents) -> None:
    trio.part(3)
    trio.wait_for_world(2, 1, 2)
    trio.print_pauses("planned leave", 1, 2)
    worker = trio.steps(3)[-1].process
    wait_until(lambda: not Path(f"/proc/{worker}").exists())
    said = "bftrainer: n3 is given back as the plan says; this is no failure\n"
    wait_until(lambda: said in trio.log(3))
    assert trio.processes[3].poll() is None
    trio.keeper.kill()
    find_or_start(trio.keeper.state, "127.0.0.1:0")
    trio.own(2)
    left = next(notes(trio.keeper, NoteKind.LEFT))
    assert left == Note(NoteKind.LEFT, ARRAY, 3, "n3"), "each keeper hears that it is to be ended"
    trio.signal(3, signal.SIGTERM)
    assert trio.processes[3].wait(120) != 0
    trio.wait_for_steps(1)
    assert trio.steps(1)[-1].world == 2


@pytest.mark.once
def test_a_change_is_one_line_in_the_log_of_the_first_node(pair: Agents) -> None:
    pair.wait_for_steps(1)  # a speed takes two
    pair.start(3)
    pair.wait_for_world(3, 1, 2, 3)
    pair.wait_for_steps(1)
    (pair.folder / "stop").touch()
    assert [pair.processes[task].wait(120) for task in (1, 2, 3)] == [0, 0, 0]
    logs = "".join(pair.log(task) for task in (1, 2, 3))
    found = re.findall(r"^bftrainer: n.*: 3 nodes.*$", logs, re.MULTILINE)
    speed = r"[\d.,e+]+ steps/s"
    stood = r"training stood still for \d+\.\d s"
    line = rf"bftrainer: n3 came: 3 nodes; {stood}; {speed} before, {speed} now"
    assert len(found) == 1
    assert re.fullmatch(line, found[0]), found


def test_nobody_waits_at_the_end_for_an_agent_that_is_gone(keeper: Keeper, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, pathlib, sys, time\n"
        "folder, node = pathlib.Path(sys.argv[1]), os.environ['SLURMD_NODENAME']\n"
        "(folder / ('began.' + node)).touch()\n"
        "while node == 'n2' or not (folder / 'began.n2').exists(): time.sleep(0.05)\n"
        "(folder / 'done').touch()\n"
    )
    with started_agents(keeper, tmp_path / "trainer", script) as agents:
        agents.own(2)
        agents.start(1, 2)
        wait_until(lambda: len(list(agents.folder.glob("began.*"))) == 2)
        wait_until((agents.folder / "done").exists)
        with contextlib.suppress(Exception):
            agents.processes[1].wait(1)
        assert agents.processes[1].poll() is None  # n2 has not ended yet
        agents.kill(2)
        assert agents.processes[1].wait(120) == 0


def test_nodes_may_run_different_numbers_of_processes(agents: Agents) -> None:
    agents.own(2)
    agents.start(1, PET_NPROC_PER_NODE="2")
    agents.start(2)
    agents.wait_for_world(3, 1, 2)


def test_the_node_whose_script_fails_is_told_and_not_those_that_fail_of_it(trio: Agents) -> None:
    trio.folder.joinpath("fail.n2").touch()
    failed = next(notes(trio.keeper, NoteKind.FAILED))
    assert (failed.node, failed.text.splitlines()[-1]) == ("n2", "ValueError: no such data")


@pytest.mark.once
def test_training_goes_on_without_the_keeper_and_with_the_next_one(pair: Agents) -> None:
    processes = [pair.steps(task)[-1].process for task in (1, 2)]
    pair.keeper.kill()
    pair.wait_for_steps(1)
    find_or_start(pair.keeper.state, "127.0.0.1:0")
    pair.own(3)
    pair.wait_for_steps(1, 25)
    assert [pair.steps(task)[-1].process for task in (1, 2)] == processes
    pair.start(3)
    pair.wait_for_world(3, 1, 2, 3)


def test_steps_are_reported_and_samples_only_where_they_are_known(pair: Agents) -> None:
    reported = dict(next(notes(pair.keeper, NoteKind.PROGRESS)).measures)
    pair.wait_for_steps(1)
    assert reported["steps"] > 0
    assert (reported["nodes"], reported["generation"]) == (2.0, 1.0)
    assert "samples" not in reported
    assert "pause_s" not in reported
    pair.kill(2)
    later = (dict(note.measures) for note in notes(pair.keeper, NoteKind.PROGRESS))
    alone = next(measures for measures in later if measures["generation"] > 1)
    assert alone["nodes"] == 1.0
    steps = pair.steps(1)
    first = next(place for place, step in enumerate(steps) if step.world == 1)
    # A step is counted after the line of the one before it, and before its own.
    assert 0 < alone["pause_s"] <= steps[first].time_s - steps[first - 2].time_s


@pytest.mark.once
def test_a_script_that_forms_no_group_is_reported_to_train_alone(
    keeper: Keeper, tmp_path: Path
) -> None:
    script = Path(__file__).with_name("ungrouped.py")
    with started_agents(keeper, tmp_path / "trainer", script) as agents:
        agents.own(2, Sizes((2,)))
        agents.start(1, 2)
        reported = dict(next(notes(keeper, NoteKind.PROGRESS)).measures)
        assert (reported["nodes"], reported["alone"]) == (2.0, 1.0)


@pytest.mark.once
@pytest.mark.skipif(
    not torch_private.has_libuv(), reason="torchrun's own c10d needs a torch with libuv"
)
def test_a_user_may_opt_out(agents: Agents) -> None:
    store = C10dStore()
    agents.start(1, 2, **store.environment)
    agents.wait_for_world(2, 1, 2)
    parent = Path(f"/proc/{agents.steps(1)[-1].process}/stat").read_text().split(") ")[1].split()[1]
    assert int(parent) == agents.processes[1].pid  # a program of its own, not a fork
    for process in agents.processes.values():  # else it would outlive its agent
        process.terminate()
        process.wait(120)


def test_a_script_that_hangs_at_sigterm_holds_nobody_for_half_a_minute(
    keeper: Keeper, tmp_path: Path
) -> None:
    with started_agents(
        keeper, tmp_path / "trainer", Path(__file__).with_name("stubborn.py")
    ) as agents:
        agents.own(1)
        agents.start(1)
        agents.wait_for_world(1, 1)
        agents.own(2)
        agents.start(2)
        agents.wait_for_world(2, 1, 2)
        agents.print_pauses("hangs at SIGTERM", 1)
        assert agents.pauses(1)[-1] < 25  # torchrun itself would end it after 30 s


def test_a_script_that_ends_with_0_at_sigterm_holds_nobody_for_its_grace(
    keeper: Keeper, tmp_path: Path
) -> None:
    with started_agents(
        keeper, tmp_path / "trainer", Path(__file__).with_name("polite.py")
    ) as agents:
        agents.train_on(1, 2, BFTRAINER_GRACE="3000")
        agents.start(3, BFTRAINER_GRACE="3000")
        agents.wait_for_world(3, 1, 2, 3)
        agents.signal_all(2, signal.SIGTERM)
        assert agents.processes[2].wait(120) != 0
        agents.wait_for_world(2, 1, 3)
        assert all(agents.pauses(task)[-1] < 25 for task in (1, 3))  # as above


@pytest.mark.once
@pytest.mark.parametrize(
    "options",
    [{}, {"PYTHON_EXEC": sys.executable.replace("/bin/", "/bin//")}],
    ids=["forked", "cold"],
)
def test_what_a_script_has_started_does_not_add_up_on_nodes_that_stay(
    keeper: Keeper, tmp_path: Path, options: dict[str, str]
) -> None:
    folder = tmp_path / "trainer"

    def helpers(node: str) -> list[int]:
        return [int(path.suffix[1:]) for path in folder.glob(f"helper.{node}.*")]

    def runs(process: int) -> bool:
        with contextlib.suppress(OSError):
            return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        return False

    def end_helpers() -> None:
        for one in helpers("n1") + helpers("n2"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)

    with contextlib.ExitStack() as stack:
        stack.callback(end_helpers)  # they outlive their trainer, and a test that fails
        script = Path(__file__).with_name("helped.py")
        agents = stack.enter_context(started_agents(keeper, folder, script))
        agents.train_on(1, 2, **options)
        before = helpers("n1")
        assert all(runs(one) for one in before)
        agents.kill(2)
        agents.wait_for_world(1, 1)
        wait_until(lambda: not any(runs(one) for one in before))
        now = set(helpers("n1")) - set(before)
        assert len(now) == len(before) == 2
        assert all(runs(one) for one in now)
