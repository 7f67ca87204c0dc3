"""A script's own function hears of each change of its nodes, in the thread that trains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bftrainer_slurm.elastic import listeners
from bftrainer_slurm.elastic.listeners import NodesChanged, hear, write
from bftrainer_slurm.elastic.memory import Memory
from bftrainer_slurm.elastic.progress import Progress
from bftrainer_slurm.elastic.steps import Steps

N1, N2 = (1, "n1"), (2, "n2")
CHANGE = NodesChanged(("n1",), ("n1", "n2"), "join", 0.4, 2, 600.0)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[NodesChanged]]:
    monkeypatch.setattr(listeners, "_listeners", [])
    changes: list[NodesChanged] = []
    listeners.on_change(changes.append)
    yield changes


def test_a_change_says_what_was_before_and_after_and_why(heard: list[NodesChanged]) -> None:
    memory = Memory.made()
    counts, past = memory.counts, memory.past
    progress = Progress(memory, report=lambda **_: None, tell=lambda text: None)
    progress.began(1, {N1}, "", tells=True)
    counts.steps, counts.samples, counts.first_s, counts.last_s = 101, 404, 100, 110
    progress.ended()
    progress.began(2, {N1, N2}, "join", tells=True)
    counts.steps, counts.samples, counts.first_s, counts.last_s = 502, 2008, 110.5, 130.5
    past.highest, past.lost = 500, 2
    progress.look()
    hear(memory)
    begin, join = heard
    assert (begin.why, begin.lost_steps, begin.stood_still_s) == ("begin", None, None)
    assert (join.why, join.lost_steps, join.stood_still_s) == ("join", 2, 0.5)
    assert (join.nodes_before, join.nodes) == (("n1",), ("n1", "n2"))
    assert join.samples_per_s == pytest.approx(80)


def test_one_that_the_agent_has_seen_is_told_at_the_next_step_and_once(
    heard: list[NodesChanged],
) -> None:
    memory = Memory.made()
    counted = Steps(Memory.opened(memory.path))
    counted.by_script(None)
    assert heard == []
    write(memory, CHANGE)
    counted.by_script(None)
    counted.by_script(None)
    assert heard == [CHANGE]


def test_what_is_told_while_no_process_trains_is_heard_by_the_next_one(
    heard: list[NodesChanged],
) -> None:
    memory = Memory.made()
    others = [NodesChanged((), (str(number),), "begin") for number in range(3)]
    for one in others:
        write(memory, one)
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
    memory = Memory.made()
    write(memory, CHANGE)
    hear(memory)
    assert heard == [CHANGE, CHANGE]
    assert "on_change" in (said := capfd.readouterr().err)
    assert "no network" in said


def test_what_an_agent_of_another_version_tells_is_passed_over(heard: list[NodesChanged]) -> None:
    memory = Memory.made()
    memory.tell(b'{"nodes_before": [], "nodes": [], "why": "join", "racks": 2}')
    write(memory, CHANGE)
    Steps(memory).by_script(None)
    assert heard == [CHANGE]
    assert not memory.untold


def test_one_with_more_nodes_than_there_is_room_for_is_left_out(heard: list[NodesChanged]) -> None:
    memory = Memory.made()
    nodes = tuple(f"node{number:060d}" for number in range(10_000))
    write(memory, NodesChanged(nodes, nodes, "loss"))
    write(memory, CHANGE)
    Steps(memory).by_script(None)
    assert heard == [CHANGE]


def test_a_repeated_step_is_no_progress() -> None:
    memory = Memory.made()
    first = Steps(memory)
    for number in (1, 2, 3):
        first.by_script(8, number)
    assert memory.read().lost == 0
    memory.begin()
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
