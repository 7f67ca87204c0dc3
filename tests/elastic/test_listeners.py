"""A script's own function hears of each change of its nodes, in the thread that trains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bftrainer_slurm.elastic import listeners
from bftrainer_slurm.elastic.listeners import NodesChanged, write
from bftrainer_slurm.elastic.memory import Memory
from bftrainer_slurm.elastic.progress import Progress
from bftrainer_slurm.elastic.steps import Steps

N1, N2 = (1, "n1"), (2, "n2")
CHANGE = NodesChanged(("n1",), ("n1", "n2"), "join", 0.4, 2, 600.0)


@pytest.fixture
def memory() -> Memory:
    return Memory.made()


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[NodesChanged]]:
    monkeypatch.setattr(listeners, "_listeners", [])
    changes: list[NodesChanged] = []
    listeners.on_change(changes.append)
    yield changes


def test_a_change_says_what_was_before_and_after_and_why(
    memory: Memory, heard: list[NodesChanged]
) -> None:
    counts, past = memory.counts, memory.past
    progress = Progress(memory, report=lambda **_: None, tell=lambda text: None)
    progress.began(1, {N1}, "", tells=True)
    counts.steps, counts.samples, counts.first_s, counts.last_s = 101, 404, 100, 110
    progress.ended()
    progress.began(2, {N1, N2}, "join", tells=True)
    counts.steps, counts.samples, counts.first_s, counts.last_s = 502, 2008, 110.5, 130.5
    past.highest, past.lost = 500, 2
    progress.look()
    listeners.hear(memory)
    begin, join = heard
    assert (begin.why, begin.lost_steps, begin.stood_still_s) == ("begin", None, None)
    assert (join.why, join.lost_steps, join.stood_still_s) == ("join", 2, 0.5)
    assert (join.nodes_before, join.nodes) == (("n1",), ("n1", "n2"))
    assert join.samples_per_s == pytest.approx(80)


def test_one_that_the_agent_has_seen_is_told_at_the_next_step_and_once(
    memory: Memory, heard: list[NodesChanged]
) -> None:
    counted = Steps(Memory.opened(memory.path))
    counted.by_script(None)
    assert heard == []
    write(memory, CHANGE)
    for _ in range(2):
        counted.by_script(None)
    assert heard == [CHANGE]


def test_what_is_told_while_no_process_trains_is_heard_by_the_next_one(
    memory: Memory, heard: list[NodesChanged]
) -> None:
    others = [NodesChanged((), (str(number),), "begin") for number in range(3)]
    for one in others:
        write(memory, one)
    memory.begin()
    Steps(memory).by_script(None)
    assert heard == others


def test_a_function_that_raises_is_named_and_disturbs_nobody(
    memory: Memory, heard: list[NodesChanged], capfd: pytest.CaptureFixture[str]
) -> None:
    def faulty(change: NodesChanged) -> None:
        raise ValueError("no network")

    listeners.on_change(faulty)
    listeners.on_change(heard.append)
    write(memory, CHANGE)
    listeners.hear(memory)
    assert heard == [CHANGE, CHANGE]
    assert "on_change" in (said := capfd.readouterr().err)
    assert "no network" in said


def test_what_cannot_be_read_or_has_no_room_is_passed_over(
    memory: Memory, heard: list[NodesChanged]
) -> None:
    memory.tell(b'{"nodes_before": [], "nodes": [], "why": "join", "racks": 2}')  # a newer agent's
    nodes = tuple(f"node{number:060d}" for number in range(10_000))
    write(memory, NodesChanged(nodes, nodes, "loss"))
    write(memory, CHANGE)
    Steps(memory).by_script(None)
    assert heard == [CHANGE]
    assert not memory.untold
