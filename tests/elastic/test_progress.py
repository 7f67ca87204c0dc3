"""What an agent tells of its training: a job's log of changes of its nodes, the plan of steps.

And a script's own function, which hears of each change in the thread that trains.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from math import nan

import pytest

from bftrainer_slurm.elastic import listeners
from bftrainer_slurm.elastic.listeners import NodesChanged, write
from bftrainer_slurm.elastic.memory import Memory, StepCounts
from bftrainer_slurm.elastic.progress import Progress
from bftrainer_slurm.elastic.steps import Steps

N1, N2, N3 = (1, "n1"), (2, "n2"), (3, "n3")
NOTHING = StepCounts(0, None, 0.0, 0.0)


@pytest.fixture
def memory() -> Memory:
    return Memory.made()


def progress(steps: int, first_s: float, last_s: float, samples: float | None = None) -> StepCounts:
    return StepCounts(steps, samples, first_s, last_s)


class Log(Progress):
    """Keeps what it tells, and reports; its memory says what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.reports: list[dict[str, float]] = []
        self.memory = Memory.made()
        super().__init__(self.memory, lambda **told: self.reports.append(told), self.lines.append)

    def counted(self, now: StepCounts) -> None:
        counts, past = self.memory.counts, self.memory.past
        counts.steps, counts.first_s, counts.last_s = now.steps, now.first_s, now.last_s
        counts.samples = nan if now.samples is None else now.samples
        past.highest, past.lost, past.again_s = now.lost is not None, now.lost or 0, now.again_s
        past.lost_samples = nan if now.lost_samples is None else now.lost_samples

    def begin(
        self, places: set[tuple[int, str]], before: StepCounts, why: str = "", tells: bool = False
    ) -> None:
        self.counted(before)
        self.began(1, places, why, tells)

    def train(self, now: StepCounts) -> None:
        self.counted(now)
        self.look()

    def end(self, now: StepCounts) -> None:
        self.counted(now)
        self.ended()

    def change(self, after: set[tuple[int, str]], why: str, tells: bool = True) -> str:
        """Train on n1 and n2 for 10 s, change, train for 20 s; return what was said of the change.

        10 steps a second of 4 samples each, then 20; half a second between them.
        """
        self.begin({N1, N2}, progress(0, 0, 0, 0))
        before = progress(101, 100, 110, 404)
        self.end(before)
        self.begin(after, before, why, tells)
        self.train(progress(111, 110.5, 111, 444))
        assert self.lines == []
        self.train(progress(502, 110.5, 130.5, 2008))
        return "\n".join(self.lines)


@pytest.mark.parametrize(
    ("after", "why", "said"),
    [
        (
            {N1, N2, N3},
            "join",
            "n3 came: 3 nodes; training stood still for 0.5 s; 40 samples/s before, "
            "80 samples/s now",
        ),
        ({N1}, "leave", "n2 left: 1 node; "),
        ({N1}, "loss", "n2 was lost: 1 node; "),
        ({N3}, "loss", "n3 came, n1, n2 were lost: 1 node; "),
        ({N1, N2}, "failure", "the script failed, and starts again: 2 nodes; "),
        ({N1, (4, "n2")}, "loss", "n2 came, n2 was lost: 2 nodes; "),
    ],
)
def test_a_change_is_one_line_that_says_who_came_and_who_went_and_why(
    after: set[tuple[int, str]], why: str, said: str
) -> None:
    assert Log().change(after, why).startswith(said)


@pytest.mark.parametrize(
    ("lost", "samples", "again_s", "said"),
    [
        (1, 32.0, 0, "1 step (32 samples) was lost; training stood still for 0.5 s"),
        (1200, None, 0, "1,200 steps were lost; training stood still for 0.5 s"),
        (0, 0.0, 0, "training stood still for 0.5 s"),
        (None, None, 0, "training stood still for 0.5 s"),
        (
            30,
            None,
            110.25,
            "30 steps were lost; training stood still for 0.2 s",
        ),  # repeats are none
    ],
)
def test_it_says_what_is_trained_again(
    lost: int | None, samples: float | None, again_s: float, said: str
) -> None:
    log = Log()
    log.begin({N1, N2}, NOTHING)
    before = replace(progress(101, 100, 110), lost=None if lost is None else 7, lost_samples=70)
    log.begin({N1}, before, "loss", tells=True)
    now = replace(progress(502, 110.5, 130.5), again_s=again_s)
    all_lost = None if lost is None else 7 + lost
    log.train(replace(now, lost=all_lost, lost_samples=None if samples is None else 70 + samples))
    assert log.lines[0].startswith(f"n2 was lost: 1 node; {said}")


def test_changes_with_no_step_between_them_are_told_as_one() -> None:
    log = Log()
    log.begin({N1, N2, N3}, NOTHING)
    before = replace(progress(101, 100, 110), lost=0)
    log.end(before)
    log.begin({N1, N2}, before, "loss", tells=True)
    none_made = replace(before, first_s=0.0, lost=1)
    log.end(none_made)
    log.begin({N1}, none_made, "leave", tells=True)
    log.train(replace(progress(502, 112, 132), lost=1))
    (said,) = log.lines
    assert said.startswith(
        "n2, n3 were lost: 1 node; 1 step was lost; training stood still for 2.0"
    )


def test_a_change_is_told_once_and_by_the_first_node_of_the_new_generation_alone() -> None:
    assert Log().change({N1, N2, N3}, "join", tells=False) == ""
    log = Log()
    log.change({N1}, "loss")
    log.train(progress(900, 110.5, 150, 4000))
    log.end(progress(900, 110.5, 150, 4000))
    assert len(log.lines) == 1


@pytest.mark.parametrize(
    ("now", "said"),
    [(progress(3, 100, 102), ["n1 begins on 1 node; 1 steps/s now"]), (NOTHING, [])],
)
def test_a_generation_that_ends_early_is_told_with_what_is_known(
    now: StepCounts, said: list[str]
) -> None:
    log = Log()
    log.begin({N1}, NOTHING, tells=True)
    log.end(now)
    assert log.lines == said


def test_what_is_new_is_reported_while_the_node_is_the_first_and_a_last_time_at_the_end() -> None:
    log = Log()
    log.begin({N1, N2}, NOTHING, tells=True)
    log.look()
    for steps in (3, 3, 5):
        log.train(progress(steps, 100, 100 + steps))
    log.end(progress(6, 100, 106))
    log.begin({N1, N2, N3}, progress(6, 100, 106), "join", tells=False)
    log.train(progress(9, 107, 109))
    assert [(told["steps"], told["nodes"]) for told in log.reports] == [(3, 2), (5, 2), (6, 2)]


def test_a_generation_is_not_over_before_what_was_read_of_it_is_told() -> None:
    """Else its steps would count for the next one, whose change is not told yet."""
    order: list[str] = []
    read, over = threading.Event(), threading.Event()

    def report(**_: float) -> None:
        read.set()
        over.wait(0.2)
        order.append("told")

    memory = Memory.made()
    told = Progress(memory, report)
    told.began(1, {N1}, "", tells=True)
    memory.counts.first_s = memory.counts.last_s = 1.0
    threading.Thread(target=told.look).start()
    assert read.wait(60)
    told.ended()
    order.append("over")
    over.set()
    assert order == ["told", "over"]


CHANGE = NodesChanged(("n1",), ("n1", "n2"), "join", 0.4, 2, 600.0)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[NodesChanged]]:
    monkeypatch.setattr(listeners, "_listeners", [])
    changes: list[NodesChanged] = []
    listeners.on_change(changes.append)
    yield changes


def test_a_function_hears_what_was_before_and_after_a_change_and_why(
    heard: list[NodesChanged],
) -> None:
    log = Log()
    log.begin({N1}, NOTHING, tells=True)
    log.end(before := replace(progress(101, 100, 110, 404), lost=0))
    log.begin({N1, N2}, before, "join", tells=True)
    log.train(replace(progress(502, 110.5, 130.5, 2008), lost=2))
    listeners.hear(log.memory)
    assert heard == [
        NodesChanged((), ("n1",), "begin"),
        NodesChanged(("n1",), ("n1", "n2"), "join", 0.5, 2, pytest.approx(80)),
    ]


def test_what_the_agent_has_seen_is_told_once_at_the_next_step_though_of_a_later_process(
    memory: Memory, heard: list[NodesChanged]
) -> None:
    counted = Steps(Memory.opened(memory.path))
    counted.by_script(None)
    assert heard == []
    write(memory, CHANGE)
    for _ in range(2):
        counted.by_script(None)
    assert heard == [CHANGE]
    others = [NodesChanged((), (str(number),), "begin") for number in range(3)]
    for one in others:
        write(memory, one)
    memory.begin()
    Steps(memory).by_script(None)
    assert heard == [CHANGE, *others]


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
