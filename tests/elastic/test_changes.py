"""What a job's log says of changes of its nodes."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

import pytest

from bftrainer_slurm.elastic.changes import ChangeLog, Era, GivenBack
from bftrainer_slurm.elastic.memory import StepCounts

N1, N2, N3 = (1, "n1"), (2, "n2"), (3, "n3")
NOTHING = StepCounts(0, None, 0.0, 0.0)


def progress(steps: int, first_s: float, last_s: float, samples: float | None = None) -> StepCounts:
    return StepCounts(steps, samples, first_s, last_s)


def era(places: set[tuple[int, str]], before: StepCounts) -> Era:
    return Era(1, frozenset(places), before)


class Log(ChangeLog):
    """Keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        super().__init__(self.lines.append)

    def change(self, after: set[tuple[int, str]], why: str, tells: bool = True) -> str:
        """Train on n1 and n2 for 10 s, change, train for 20 s; return what was said of the change.

        10 steps a second of 4 samples each, then 20; half a second between them.
        """
        self.began(era({N1, N2}, progress(0, 0, 0, 0)), "", tells=False)
        before = progress(101, 100, 110, 404)
        self.ended(before)
        self.began(era(after, before), why, tells)
        self.trained(progress(111, 110.5, 111, 444))
        assert self.lines == []
        self.trained(progress(502, 110.5, 130.5, 2008))
        return "\n".join(self.lines)


def test_a_change_is_one_line_once_the_speed_after_it_is_known() -> None:
    assert Log().change({N1, N2, N3}, "join") == (
        "n3 came: 3 nodes; training stood still for 0.5 s; 40 samples/s before, 80 samples/s now"
    )


@pytest.mark.parametrize(
    ("after", "why", "said"),
    [
        ({N1}, "leave", "n2 left: 1 node"),
        ({N1}, "loss", "n2 was lost: 1 node"),
        ({N3}, "loss", "n3 came, n1, n2 were lost: 1 node"),
        ({N1, N2}, "failure", "the script failed, and starts again: 2 nodes"),
        ({N1, (4, "n2")}, "loss", "n2 came, n2 was lost: 2 nodes"),
    ],
)
def test_it_says_who_came_and_who_went_and_why(
    after: set[tuple[int, str]], why: str, said: str
) -> None:
    assert Log().change(after, why).startswith(f"{said}; ")


@pytest.mark.parametrize(
    ("lost", "samples", "said"),
    [
        (1, 32.0, "n2 was lost: 1 node; 1 step (32 samples) was lost; training stood still"),
        (1200, None, "n2 was lost: 1 node; 1,200 steps were lost; training stood still"),
        (0, 0.0, "n2 was lost: 1 node; training stood still"),
        (None, None, "n2 was lost: 1 node; training stood still"),
    ],
)
def test_it_says_what_is_trained_again(lost: int | None, samples: float | None, said: str) -> None:
    log = Log()
    log.began(era({N1, N2}, NOTHING), "", tells=False)
    before = replace(progress(101, 100, 110), lost=None if lost is None else 7, lost_samples=70)
    log.began(era({N1}, before), "loss", tells=True)
    all_lost = None if lost is None else 7 + lost
    all_samples = None if samples is None else 70 + samples
    log.trained(replace(progress(502, 110.5, 130.5), lost=all_lost, lost_samples=all_samples))
    assert log.lines[0].startswith(said)


def test_training_that_is_repeated_does_not_stand_still() -> None:
    log = Log()
    log.began(era({N1, N2}, NOTHING), "", tells=False)
    log.began(era({N1}, replace(progress(101, 100, 110), lost=0)), "loss", tells=True)
    log.trained(replace(progress(502, 114, 134), lost=30, again_s=110.25, lost_samples=None))
    assert "; 30 steps were lost; training stood still for 0.2 s; " in log.lines[0]


def test_changes_with_no_step_between_them_are_told_as_one() -> None:
    log = Log()
    log.began(era({N1, N2, N3}, NOTHING), "", tells=False)
    before = replace(progress(101, 100, 110), lost=0)
    log.ended(before)
    log.began(era({N1, N2}, before), "loss", tells=True)
    none_made = replace(before, first_s=0.0, lost=1)
    log.ended(none_made)
    log.began(era({N1}, none_made), "leave", tells=True)
    log.trained(replace(progress(502, 112, 132), lost=1))
    (said,) = log.lines
    assert said.startswith(
        "n2, n3 were lost: 1 node; 1 step was lost; training stood still for 2.0"
    )


def test_only_the_first_node_of_the_new_generation_tells() -> None:
    assert Log().change({N1, N2, N3}, "join", tells=False) == ""


def test_a_change_is_told_once() -> None:
    log = Log()
    log.change({N1}, "loss")
    log.trained(progress(900, 110.5, 150, 4000))
    log.ended(progress(900, 110.5, 150, 4000))
    assert len(log.lines) == 1


def test_a_generation_that_ends_early_is_told_with_what_is_known() -> None:
    log = Log()
    log.began(era({N1}, NOTHING), "", tells=True)
    log.ended(progress(3, 100, 102))
    assert log.lines == ["n1 begins on 1 node; 1 steps/s now"]


def test_without_a_step_there_is_nothing_to_tell() -> None:
    log = Log()
    log.began(era({N1, N2}, NOTHING), "", tells=True)
    log.ended(NOTHING)
    assert log.lines == []


@pytest.mark.parametrize(
    ("planned", "to"),
    [
        (True, "as the plan says"),
        (False, "to an ordinary job, unless somebody cancelled this one"),
    ],
)
def test_that_a_node_is_given_back_is_said_once_and_is_not_called_a_failure(
    planned: bool, to: str
) -> None:
    said: list[str] = []
    given_back = GivenBack("n3", said.append)
    given_back.say(planned)
    given_back.say()
    assert said == [f"n3 is given back {to}; this is no failure"]


@pytest.mark.parametrize("a_thread_is_about_to", [False, True])
def test_it_is_said_before_torchrun_says_that_it_was_signalled(a_thread_is_about_to: bool) -> None:
    said: list[str] = []
    begun, logged = threading.Event(), threading.Event()

    def tell(text: str) -> None:
        begun.set()
        logged.wait(0.2)  # torchrun's message must not come in this time
        said.append("ours")

    torchrun = logging.getLogger("torch.distributed.elastic.agent.server.api")
    given_back = GivenBack("n3", tell)
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    torchrun.addHandler(handler)
    try:
        torchrun.warning("Closing process %d", 7)
        if a_thread_is_about_to:
            threading.Thread(target=given_back.say).start()
            begun.wait()
        torchrun.warning("Received %s death signal, shutting down workers", 15)
        logged.set()
    finally:
        torchrun.removeHandler(handler)
        torchrun.removeFilter(given_back)
    assert said == ["Closing process 7", "ours", "Received 15 death signal, shutting down workers"]
