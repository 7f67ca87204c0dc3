"""A script that saves when it is told to: no step is lost where nodes come and go as announced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer_slurm.elastic import saving
from bftrainer_slurm.elastic.memory import VARIABLE, Memory
from bftrainer_slurm.elastic.saving import Asking
from scripts.labcluster.keeper import Keeper
from tests.elastic.agents import ARRAY, started_agents, steps_in


@pytest.fixture
def memory() -> Memory:
    return Memory.made()


# What happens in this order: how many processes save when told, why their generation ends ("!":
# Slurm takes this node) and whether they are ended for it, which has saved, seconds that pass.
STORIES = {
    "does not save when told": "join=ends leave=ends unasked",
    "has lost a peer": "savers=1 loss=ends failure=ends unasked",
    "saves when told is asked, and ended when all its processes have, at a join": (
        "savers=2 join=waits asked saved=0 join=waits saved=1 join=ends"
    ),
    "and as it leaves": "savers=2 leave=waits asked saved=0 leave=waits saved=1 leave=ends",
    "takes too long": "savers=1 join=waits +29.9 join=waits +0.1 join=ends",
    # If it is gone before, the others wait for it in a collective, and nobody tells them to save.
    "is taken back has its grace for the step, and the others 30 s to save": (
        "savers=1 leave=waits +20 leave!=waits +1.9 leave!=waits +0.1 leave!=ends "
        "told leave!=waits +27.9 leave!=waits +0.1 leave!=ends"
    ),
    "begins is not asked what those before it were": (
        "savers=1 join=waits asked saved=0 ending begins unasked savers=1 join=waits"
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_one_that(memory: Memory, story: str) -> None:
    now_s, present = 100.0, memory.present
    asking = Asking(memory, 2.0, lambda: now_s)
    for event in story.split():
        match event.split("="):
            case ["savers", number]:
                present.savers = int(number)
            case ["saved", number]:
                memory.saved[int(number)] = True
            case [why, said]:
                planned = present.savers > 0 and not why.endswith("!")
                assert asking.is_over(why.rstrip("!"), planned) == (said == "ends"), event
            case ["begins"]:
                asking.begin()
            case ["told" | "ending" as name]:
                setattr(present, name, True)
            case ["asked" | "unasked"]:
                assert (present.asked, present.ending) == (event == "asked", False)
            case [seconds]:
                now_s += float(seconds)


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
@pytest.mark.parametrize(
    "how", [{"SAVE_S": "3"}, {"KEEPS_STATE": "yes"}], ids=["for 3 s on a disk", "in memory"]
)
def test_no_step_is_lost_as_a_node_joins_leaves_and_is_reclaimed(
    keeper: Keeper, tmp_path: Path, how: dict[str, str]
) -> None:
    """Who leaves is each time the one that saves on a disk."""
    slow = how | {"BFTRAINER_GRACE": "100"}
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
        assert (agents.folder / "checkpoint").exists() == ("SAVE_S" in how)
