"""Networks to the keeper are cut, nodes sleep, the keeper is away: never do two groups train.

Real torchruns and a real keeper; each node reaches it by a network of its own.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.home import find_or_start
from bftrainer_slurm.keeper.messages import Engaged
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import ARRAY, Agents, started_agents, steps_in
from tests.elastic.network import BOTH, Network, network_to

pytestmark = pytest.mark.torch

_WAITS = "waits for element 7_1 on n1: it may still train"


class Cuttable:
    """A trainer whose nodes reach the keeper by networks of their own."""

    def __init__(self, agents: Agents, networks: dict[int, Network]) -> None:
        self.agents = agents
        self.networks = networks

    def start(self, *tasks: int) -> None:
        for task in tasks:
            self.agents.start(task, BFTRAINER_KEEPER=self.networks[task].address)

    def train_on(self, *tasks: int) -> None:
        self.agents.own(len(tasks))
        self.start(*tasks)
        self.agents.wait_for_world(len(tasks), *tasks)

    def cut(self, *tasks: int, ways: tuple[str, ...] = BOTH) -> None:
        for task in tasks:
            self.networks[task].cut = ways

    def heal(self, *tasks: int) -> None:
        self.cut(*tasks, ways=())

    def gone(self, *tasks: int) -> None:
        """Slurm has ended them, and the controller says so."""
        for task in tasks:
            self.agents.kill(task)
            self.agents.keeper.client.lost(ARRAY, task, f"n{task}")

    def says(self, task: int, words: str) -> bool:
        """Whether a node's log has these words."""
        log = self.agents.folder / f"{task}.log"
        return log.exists() and words in log.read_text()

    def check_never_two(self) -> None:
        """While one process trained alone, no other one trained."""
        steps = steps_in(self.agents.folder)
        spans = {
            process: [step.time_s for step in steps if step.process == process]
            for process in dict.fromkeys(step.process for step in steps)
        }
        for alone in {step.process for step in steps if step.world == 1}:
            first_s, last_s = spans[alone][0], spans[alone][-1]
            beside = [
                one
                for one, times_s in spans.items()
                if one != alone and any(first_s < time_s < last_s for time_s in times_s)
            ]
            assert not beside, f"{beside} trained while {alone} did"

    def notes(self, kind: NoteKind) -> list[Note]:
        found: list[Note] = []
        for _, numbered in self.agents.keeper.client.watch("", 0):
            if numbered is None and found:
                break
            if numbered is not None and numbered.note.kind is kind:
                found.append(numbered.note)
        return found


@pytest.fixture
def trainer(keeper: Keeper, tmp_path: Path) -> Iterator[Cuttable]:
    with ExitStack() as stack:
        networks = {task: stack.enter_context(network_to(keeper.address)) for task in range(1, 4)}
        yield Cuttable(stack.enter_context(started_agents(keeper, tmp_path / "trainer")), networks)


@pytest.mark.parametrize("ways", [BOTH, BOTH[1:]], ids=["both", "in"])
def test_a_whole_group_that_is_cut_off_trains_on_and_a_newcomer_waits(
    trainer: Cuttable, ways: tuple[str, ...]
) -> None:
    trainer.train_on(1)
    trainer.cut(1, ways=ways)
    trainer.start(2)
    wait_until(lambda: trainer.says(2, _WAITS))
    trainer.agents.wait_for_steps(1)
    assert trainer.agents.steps(2) == []
    trainer.heal(1)
    trainer.agents.wait_for_world(2, 1, 2)
    trainer.check_never_two()


def test_one_that_hears_of_a_newcomer_and_is_not_heard_itself_stands_still_until_it_is(
    trainer: Cuttable,
) -> None:
    trainer.train_on(1)
    trainer.cut(1, ways=BOTH[:1])
    trainer.start(2)
    wait_until(lambda: trainer.says(2, _WAITS))
    assert trainer.agents.steps(2) == []
    trainer.heal(1)
    trainer.agents.wait_for_world(2, 1, 2)
    trainer.check_never_two()


def test_the_controller_is_told_of_a_group_that_stays_cut_off_and_ends_it(
    trainer: Cuttable,
) -> None:
    trainer.train_on(1)
    trainer.cut(1)
    trainer.start(2)
    (cut,) = trainer.notes(NoteKind.CUT)
    assert (cut.task, cut.node) == (1, "n1")
    trainer.agents.wait_for_steps(1)
    assert trainer.agents.steps(2) == []
    trainer.gone(1)
    trainer.agents.wait_for_world(1, 2)
    trainer.check_never_two()


def test_one_of_a_group_is_cut_off_and_the_others_go_on_without_it(trainer: Cuttable) -> None:
    trainer.train_on(1, 2)
    trainer.cut(1)
    trainer.agents.wait_for_world(1, 2)
    before = len(trainer.agents.steps(1))
    trainer.agents.wait_for_steps(2)
    assert len(trainer.agents.steps(1)) == before, "it waits, as its peer has gone on"
    trainer.heal(1)
    trainer.agents.wait_for_world(2, 1, 2)


def test_a_node_that_sleeps_is_waited_for(trainer: Cuttable) -> None:
    trainer.train_on(1)
    element = trainer.agents.processes[1].pid
    os.killpg(element, signal.SIGSTOP)
    trainer.start(2)
    wait_until(lambda: trainer.says(2, _WAITS))
    assert trainer.agents.steps(2) == []
    os.killpg(element, signal.SIGCONT)
    trainer.agents.wait_for_world(2, 1, 2)
    trainer.check_never_two()


def test_a_keeper_that_is_away_stops_nobody_and_the_next_begins_nothing_beside_them(
    trainer: Cuttable,
) -> None:
    trainer.train_on(1)
    keeper = trainer.agents.keeper
    address = keeper.address
    keeper.kill()
    trainer.start(2)
    trainer.agents.wait_for_steps(1, 50)
    trainer.cut(1)
    find_or_start(keeper.state, address)
    keeper.client.own(ARRAY, os.getuid(), 2, engaged=Engaged(1, frozenset({1})))
    wait_until(lambda: trainer.says(2, "waits for element 7_1: it may still"))
    began_s = time.monotonic()
    trainer.agents.wait_for_steps(1, 10)
    assert trainer.agents.steps(2) == []
    assert time.monotonic() - began_s < 60
    trainer.heal(1)
    trainer.agents.wait_for_world(2, 1, 2)
    trainer.check_never_two()
