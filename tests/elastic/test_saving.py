"""A script that saves when it is told to: no step is lost where nodes come and go as announced."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer_slurm.elastic import saving
from bftrainer_slurm.elastic.memory import VARIABLE, Memory
from bftrainer_slurm.elastic.saving import LONGEST_SAVE_S, Asking
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import ARRAY, started_agents, steps_in


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def memory() -> Memory:
    return Memory.made()


@pytest.mark.parametrize(
    ("why", "savers"), [("join", 0), ("leave", 0), ("loss", 1), ("failure", 1)]
)
def test_a_script_that_does_not_save_when_told_or_has_lost_a_peer_is_ended_at_once(
    memory: Memory, why: str, savers: int
) -> None:
    memory.present.savers = savers
    assert Asking(memory, 2.0).is_over(why, planned=savers == 0)
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
SAVED_BEFORE_IT_IS_TOLD = """
import atexit, os, signal, threading
atexit.register(print, "at exit")
elastic.must_save()
print("in a buffer", end="; ")
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
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
        (SAVED_BEFORE_IT_IS_TOLD, "in a buffer; at exit\n"),
        (LOADS_WHILE_IT_SAVES, "39 True\n"),
    ],
    ids=["a pool of processes", "a program at its end", "itself", "a DataLoader's worker"],
)
def test_what_a_process_that_saves_has_started_ends_when_it_tells_it_to_and_as_python_ends(
    memory: Memory, script: str, printed: str
) -> None:
    ended = run(script, 1, memory)
    assert ended.stdout == printed, ended.stderr


@pytest.mark.torch
def test_no_step_is_lost_as_a_node_joins_leaves_and_is_reclaimed(
    keeper: Keeper, tmp_path: Path
) -> None:
    """Who leaves is each time the one that saves, for three seconds."""
    slow = {"SAVE_S": "3", "BFTRAINER_GRACE": "100"}
    with started_agents(keeper, tmp_path / "trainer") as agents:
        agents.own(3)
        agents.start(1, **slow)
        agents.wait_for_steps(1)
        agents.start(2, 3, **slow)
        agents.wait_for_world(3, 1, 2, 3)
        agents.wait_for_steps(3)
        keeper.client.part(ARRAY, [1])
        agents.wait_for_world(2, 2, 3)
        agents.wait_for_steps(3)
        agents.signal(2, signal.SIGTERM)
        agents.wait_for_world(1, 3)
        assert agents.processes[2].wait(120) != 0
        agents.start(4, 5, **slow)
        agents.wait_for_world(3, 3, 4, 5)
        agents.wait_for_steps(5)
        for task in (3, 4):  # one of them has nothing to save, and ends at once
            agents.signal(task, signal.SIGTERM)
        agents.wait_for_world(1, 5)
        agents.wait_for_steps(5)
        for task in range(1, 6):
            numbers = [step.number for step in agents.steps(task)]
            assert numbers == list(range(numbers[0], numbers[-1] + 1)), f"n{task}"
        numbers = sorted({step.number for step in steps_in(agents.folder)})
        assert numbers == list(range(1, numbers[-1] + 1))
        agents.start(6, **slow)
        agents.wait_for_world(2, 5, 6)
        agents.wait_for_steps(6)
        agents.kill(6)
        agents.wait_for_world(1, 5)
        wait_until(lambda: "n6 was lost" in agents.log(5))
        saved = int((agents.folder / "checkpoint").read_text())
        lost = max(step.number for step in agents.steps(6)) - saved
        found = re.search(
            r"^bftrainer: n6 was lost: 1 node; (\d+) steps \((\d+) samples\) were lost; "
            r"training stood still for [\d.]+ s; ",
            agents.log(5),
            re.MULTILINE,
        )
    assert found is not None
    steps, samples = map(int, found.groups())
    assert steps in {lost, lost + 1}  # it reports a step before it writes its log
    assert samples == 8 * steps  # they are trained again by one rank
