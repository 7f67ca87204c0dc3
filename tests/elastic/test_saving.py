"""A script that saves when it is told to: no step is lost where nodes come and go as announced."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.elastic import saving
from bftrainer_slurm.elastic.memory import VARIABLE, Memory
from bftrainer_slurm.elastic.saving import LONGEST_SAVE_S, Asking
from scripts.benchkit.steps import Step
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import ARRAY, Agents, started_agents, steps_in

SCRIPT = Path(__file__).with_name("when_told.py")


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def memory() -> Memory:
    return Memory.made()


@pytest.mark.parametrize("why", ["join", "leave", "loss", "failure"])
def test_a_script_that_does_not_save_when_told_is_ended_at_once(memory: Memory, why: str) -> None:
    assert Asking(memory, 2.0).is_over(why, planned=True)
    assert not memory.present.asked


@pytest.mark.parametrize("why", ["join", "leave"])
def test_one_that_does_is_asked_and_ended_when_all_its_processes_have(
    memory: Memory, why: str
) -> None:
    asking = Asking(memory, 2.0)
    memory.present.savers = 2
    assert not asking.is_over(why, planned=True)
    assert memory.present.asked
    memory.saved[0] = True
    assert not asking.is_over(why, planned=True)
    memory.saved[1] = True
    assert asking.is_over(why, planned=True)


@pytest.mark.parametrize("why", ["loss", "failure"])
def test_it_is_not_asked_where_a_peer_is_gone_already(memory: Memory, why: str) -> None:
    memory.present.savers = 1
    assert Asking(memory, 2.0).is_over(why, planned=False)
    assert not memory.present.asked


def test_one_that_takes_too_long_is_ended(memory: Memory) -> None:
    clock = Clock()
    asking = Asking(memory, 2.0, clock)
    memory.present.savers = 1
    assert not asking.is_over("join", planned=True)
    clock.now_s += LONGEST_SAVE_S
    assert asking.is_over("join", planned=True)


def test_a_node_that_is_taken_back_has_its_grace_for_the_step_and_the_others_30_s_to_save(
    memory: Memory,
) -> None:
    """If it is gone before, they wait for it in a collective, and nobody tells them to save."""
    clock = Clock()
    asking = Asking(memory, 2.0, clock)
    memory.present.savers = 1
    assert not asking.is_over("leave", planned=True)
    clock.now_s += 20.0  # a long step
    assert not asking.is_over("leave", planned=False)  # Slurm takes it in the middle of that
    clock.now_s += 1.9
    assert not asking.is_over("leave", planned=False)
    clock.now_s += 0.1
    assert asking.is_over("leave", planned=False)
    memory.present.told = True
    assert not asking.is_over("leave", planned=False)
    clock.now_s += LONGEST_SAVE_S - 2.0
    assert asking.is_over("leave", planned=False)


def test_what_processes_before_were_asked_is_nothing_to_the_next_ones(memory: Memory) -> None:
    asking = Asking(memory, 2.0)
    memory.present.savers = 1
    assert not asking.is_over("join", planned=True)
    memory.saved[0] = True
    memory.present.ending = True
    asking.begin()
    assert not memory.present.asked
    assert not memory.present.ending
    memory.present.savers = 1
    assert not asking.is_over("join", planned=True)


def test_outside_an_element_there_is_never_anything_to_save() -> None:
    assert not saving.must_save()
    with pytest.raises(RuntimeError, match="must_save"):
        saving.saved()


def run(code: str, world: int, memory: Memory) -> subprocess.CompletedProcess[str]:
    """Run a script that has made no process group, as one of so many processes."""
    environment = {VARIABLE: memory.path, "LOCAL_RANK": "0", "WORLD_SIZE": str(world)}
    return subprocess.run(
        [sys.executable, "-c", f"from bftrainer_slurm import elastic; {code}"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        start_new_session=True,
    )


@pytest.mark.torch
def test_a_process_alone_needs_no_process_group(memory: Memory) -> None:
    assert run("print(elastic.must_save())", 1, memory).stdout == "False\n"
    assert memory.saving
    memory.present.asked = True
    assert run("print(elastic.must_save())", 1, memory).stdout == "True\n"


@pytest.mark.torch
def test_several_processes_without_one_are_told_that_they_need_it(memory: Memory) -> None:
    ended = run("elastic.must_save()", 2, memory)
    assert ended.returncode != 0
    assert "must_save() asks all ranks: call torch.distributed.init_process_group()" in ended.stderr
    assert not memory.saving


POOLS = """
import multiprocessing
elastic.must_save()
for _ in range(30):
    with multiprocessing.Pool(4) as pool:  # it terminates them
        pool.map(abs, range(4))
print("all have ended")
"""
HELPER_AT_EXIT = """
import atexit, os, signal, subprocess

def compress():
    helper = subprocess.Popen(["sleep", "1000"])
    helper.terminate()
    print("ended by", helper.wait())

atexit.register(compress)
elastic.must_save()
os.kill(0, signal.SIGTERM)
elastic.saved()
"""
LOADS_WHILE_IT_SAVES = """
import os, signal
from torch.utils.data import DataLoader
elastic.must_save()
batches = iter(DataLoader(range(40), batch_size=1, num_workers=2, persistent_workers=True))
next(batches)
os.kill(0, signal.SIGTERM)  # to all of the element, as Slurm does
print(len(list(batches)), elastic.must_save())
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("script", "printed"),
    [
        (POOLS, "all have ended\n"),
        (HELPER_AT_EXIT, f"ended by {-signal.SIGTERM}\n"),
        (LOADS_WHILE_IT_SAVES, "39 True\n"),
    ],
    ids=["a pool of processes", "a program at its end", "a DataLoader's worker, and no other's"],
)
def test_what_a_process_that_saves_has_started_ends_when_it_tells_it_to(
    memory: Memory, script: str, printed: str
) -> None:
    ended = run(script, 1, memory)
    assert ended.stdout == printed, ended.stderr


@pytest.fixture
def agents(keeper: Keeper, tmp_path: Path) -> Iterator[Agents]:
    with started_agents(keeper, tmp_path / "trainer", SCRIPT) as running:
        running.own(3)
        yield running


def trained(folder: Path) -> list[int]:
    """The steps of the training, each as often as a generation has trained it."""
    by_generation = {(step.number, step.world) for step in steps_in(folder)}
    return sorted(number for number, _ in by_generation)


def consecutive(steps: list[Step]) -> bool:
    numbers = [step.number for step in steps]
    return all(after == before + 1 for before, after in itertools.pairwise(numbers))


@pytest.mark.torch
def test_no_step_is_lost_as_a_node_joins_leaves_and_is_reclaimed(agents: Agents) -> None:
    agents.start(1, 2, BFTRAINER_GRACE="100")
    agents.wait_for_world(2, 1, 2)
    agents.start(3, BFTRAINER_GRACE="100")
    agents.wait_for_world(3, 1, 2, 3)
    agents.part(2)
    agents.wait_for_world(2, 1, 3)
    agents.signal(1, signal.SIGTERM)
    agents.wait_for_world(1, 3)
    agents.print_pauses("saved when told", 3)
    assert agents.processes[1].wait(120) != 0
    agents.wait_for_steps(3)
    assert consecutive(agents.steps(3))
    numbers = trained(agents.folder)
    assert numbers == list(range(1, numbers[-1] + 1))


@pytest.mark.torch
def test_a_process_that_has_saved_ends_as_python_ends(keeper: Keeper, tmp_path: Path) -> None:
    with started_agents(keeper, tmp_path, Path(__file__).with_name("when_told.py")) as agents:
        agents.own(3)
        agents.start(1, BFTRAINER_GRACE="100")
        agents.wait_for_steps(1)
        agents.start(2, BFTRAINER_GRACE="100")  # one process saves at a join
        agents.wait_for_world(2, 1, 2)
        agents.wait_for_steps(2)
        agents.signal(1, signal.SIGTERM)  # another one at a reclaim
        agents.wait_for_world(1, 2)
        ended = [path for path in tmp_path.glob("n[12].*") if path.suffix != ".log"]
        living = f".{agents.steps(2)[-1].process}"
        for log in ended:
            if log.suffix != living:
                results = tmp_path / f"results-{log.stem}-{log.suffix[1:]}"
                steps = [line.split()[2] for line in log.read_text().splitlines()]
                assert results.read_text().splitlines() == [*steps, "at exit"]


@pytest.mark.torch
@pytest.mark.parametrize("reclaimed", [False, True])
def test_those_that_stay_wait_until_one_that_leaves_has_saved(
    agents: Agents, reclaimed: bool
) -> None:
    agents.start(1, SAVE_S="3", BFTRAINER_GRACE="100")
    agents.wait_for_steps(1)
    agents.start(2, SAVE_S="3", BFTRAINER_GRACE="100")
    agents.wait_for_world(2, 1, 2)
    agents.wait_for_steps(2)
    if reclaimed:
        agents.signal(1, signal.SIGTERM)
    else:
        agents.keeper.client.part(ARRAY, [1])
    agents.wait_for_world(1, 2)
    agents.wait_for_steps(2)
    numbers = trained(agents.folder)
    assert numbers == list(range(1, numbers[-1] + 1))


@pytest.mark.torch
def test_one_that_stays_waits_for_each_one_that_is_reclaimed(agents: Agents) -> None:
    """Of two that are reclaimed at the same time, one has nothing to save, and ends at once."""
    agents.start(1, SAVE_S="3", BFTRAINER_GRACE="100")
    agents.wait_for_steps(1)
    agents.start(2, 3, SAVE_S="3", BFTRAINER_GRACE="100")
    agents.wait_for_world(3, 1, 2, 3)
    agents.wait_for_steps(3)
    for task in (1, 2):
        agents.signal(task, signal.SIGTERM)
    agents.wait_for_world(1, 3)
    agents.wait_for_steps(3)
    numbers = trained(agents.folder)
    assert numbers == list(range(1, numbers[-1] + 1))


@pytest.mark.torch
def test_a_node_is_lost_and_the_others_begin_again(agents: Agents) -> None:
    agents.train_on(1, 2)
    agents.wait_for_steps(1)
    agents.kill(2)
    agents.wait_for_world(1, 1)
    wait_until(lambda: "n2 was lost" in agents.log(1))
    lost = max(step.number for step in agents.steps(1) if step.world == 2)
    found = re.search(
        r"^bftrainer: n2 was lost: 1 node; ([\d,]+) steps \(([\d,]+) samples\) were lost; "
        r"training stood still for [\d.]+ s; ",
        agents.log(1),
        re.MULTILINE,
    )
    assert found is not None, agents.log(1)
    print(found[0])
    steps, samples = (int(number.replace(",", "")) for number in found.groups())
    assert steps in {lost, lost + 1}  # it reports a step before it writes its log
    assert samples == 8 * steps  # they are trained again by one rank
