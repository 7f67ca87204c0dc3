"""A script's own function hears of each change of its nodes, in the thread that trains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bftrainer_slurm.elastic import listeners
from bftrainer_slurm.elastic.changes import ChangeLog, Era
from bftrainer_slurm.elastic.listeners import NodesChanged, Teller
from bftrainer_slurm.elastic.memory import Memory, StepCounts
from bftrainer_slurm.elastic.steps import Steps

N1, N2 = (1, "n1"), (2, "n2")
CHANGE = NodesChanged(("n1",), ("n1", "n2"), "join", 0.4, 10.0, 19.0, None, 600.0)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[NodesChanged]]:
    monkeypatch.setattr(listeners, "_listeners", [])
    changes: list[NodesChanged] = []
    listeners.on_change(changes.append)
    yield changes


def test_a_change_says_what_was_before_and_after_and_why(heard: list[NodesChanged]) -> None:
    log = ChangeLog(tell=lambda text: None, hear=listeners.tell)
    log.began(Era(1, frozenset({N1}), StepCounts(0, 0, 0, 0)), "", tells=True)
    before = StepCounts(101, 404, 100, 110)
    log.ended(before)
    log.began(Era(2, frozenset({N1, N2}), before), "join", tells=True)
    log.trained(StepCounts(502, 2008, 110.5, 130.5, lost=2, lost_samples=8))
    assert [change.why for change in heard] == ["begin", "join"]
    assert [change.lost_steps for change in heard] == [None, 2]
    assert [change.lost_samples for change in heard] == [None, 8]
    join = heard[-1]
    assert (join.nodes_before, join.nodes) == (("n1",), ("n1", "n2"))
    assert join.stood_still_s == 0.5
    assert join.samples_per_s_before == pytest.approx(40)
    assert join.samples_per_s == pytest.approx(80)
    assert join.steps_per_s == pytest.approx(20)


def test_one_that_the_agent_has_seen_is_told_at_the_next_step_and_once(
    heard: list[NodesChanged],
) -> None:
    memory = Memory.made()
    counted = Steps(Memory.opened(memory.path))
    counted.by_script(None)
    assert heard == []
    Teller(memory)(CHANGE)
    counted.by_script(None)
    counted.by_script(None)
    assert heard == [CHANGE]


def test_what_is_told_while_no_process_trains_is_heard_by_the_next_one(
    heard: list[NodesChanged],
) -> None:
    memory = Memory.made()
    tell = Teller(memory)
    others = [NodesChanged((), (str(number),), "begin") for number in range(3)]
    for one in others:
        tell(one)
    memory.begin()
    Steps(memory).by_script(None)
    assert heard == others


def test_a_function_that_raises_is_named_and_disturbs_nobody(
    heard: list[NodesChanged], capfd: pytest.CaptureFixture[str]
) -> None:
    def faulty(change: NodesChanged) -> None:
        raise ValueError("no network")

    listeners.on_change(faulty)
    listeners.on_change(heard.append)
    listeners.tell(CHANGE)
    assert heard == [CHANGE, CHANGE]
    assert "on_change" in (said := capfd.readouterr().err)
    assert "no network" in said


def test_a_text_that_is_half_written_is_read_at_a_later_step(heard: list[NodesChanged]) -> None:
    memory = Memory.made()
    memory.write(b'[{"nodes_before"')
    counted = Steps(memory)
    counted.by_script(None)
    assert heard == []
    Teller(memory)(CHANGE)
    counted.by_script(None)
    assert heard == [CHANGE]


def test_what_an_agent_of_another_version_tells_is_read_once(heard: list[NodesChanged]) -> None:
    memory = Memory.made()
    memory.write(b'[{"nodes_before": [], "nodes": [], "why": "join", "racks": 2}]')
    Steps(memory).by_script(None)
    assert heard == []
    assert not memory.unread


def test_one_with_more_nodes_than_there_is_room_for_is_left_out(heard: list[NodesChanged]) -> None:
    memory = Memory.made()
    nodes = tuple(f"node{number:060d}" for number in range(10_000))
    Teller(memory)(NodesChanged(nodes, nodes, "loss"))
    Steps(memory).by_script(None)
    assert heard == []


def test_a_repeated_step_is_no_progress() -> None:
    memory = Memory.made()
    first = Steps(memory)
    for number in (1, 2, 3):
        first.by_script(8, number)
    assert memory.read().lost == 0
    memory.expect_first()
    restarted = Steps(memory)
    for number in (2, 3, 4):
        restarted.by_script(8, number)
    now = memory.read()
    assert (now.steps, now.samples) == (4, 32)
    assert (now.lost, now.lost_samples) == (2, 16)
    assert 0 < now.again_s <= now.first_s


def test_what_is_trained_again_is_not_known_without_the_steps_numbers() -> None:
    memory = Memory.made()
    Steps(memory).by_script(8)
    assert memory.read().lost is None
