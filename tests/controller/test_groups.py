"""What the keeper is told: once, again where it has forgotten, and never at the loop's expense."""

from __future__ import annotations

import getpass
import os
import threading
import time
from typing import Any

import pytest

from bftrainer_slurm.controller import act
from bftrainer_slurm.controller.act import Groups
from bftrainer_slurm.keeper.messages import NOBODY, Engaged
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.sizes import ANY, Sizes
from tests.controller.fake_keeper import FakeKeeper
from tests.controller.worlds import ARRAY, Clock, cases

ME = getpass.getuser()


class Keeper(FakeKeeper):
    """A keeper, and what tells it on a clock that is set by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.groups = Groups(lambda: (self.identity, self), self.clock)  # type: ignore[arg-type,return-value]

    def told(self, want: int = 3, sizes: Sizes = ANY, **changes: Any) -> None:
        """It hears whose a trainer is, after it has changed like this."""
        if changes.pop("ended", False):
            self.groups.say(ARRAY, "ended")
        vars(self).update(changes)
        self.groups.own(ARRAY, ME, want, sizes)


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Keeper:
    """However busy the machine is, all that are asked have the time to answer."""
    monkeypatch.setattr(act, "_PATIENCE_S", 120.0)
    return Keeper()


@cases(
    "then, again",
    never_while_all_is_as_it_was=({}, False),
    when_it_is_to_have_more_nodes=({"want": 4}, True),
    when_it_may_have_other_sizes=({"sizes": Sizes((1, 3))}, True),
    by_another_keeper=({"identity": "second"}, True),
    once_its_run_has_ended=({"ended": True}, True),
)
def test_a_trainer_is_introduced_again(keeper: Keeper, then: dict[str, Any], again: bool) -> None:
    keeper.told()
    keeper.told(**then)
    keeper.told(**{key: then[key] for key in ("want", "sizes") if key in then})
    own = ("own", ARRAY, os.getuid())
    second = (*own, then.get("want", 3), then.get("sizes", ANY), NOBODY)
    said = [words for words in keeper.heard if words[0] == "own"]
    assert said == [(*own, 3, ANY, NOBODY), *[second] * again]


def test_a_new_keeper_is_told_who_took_part_and_none_is_told_twice(keeper: Keeper) -> None:
    engaged = Engaged(5, frozenset({1, 2}), 1)
    for identity in ("first", "second"):
        keeper.identity = identity
        for want in (3, 4):
            keeper.groups.own(ARRAY, ME, want, engaged=lambda: engaged)
    assert [words[5] for words in keeper.heard] == [engaged, NOBODY] * 2


def test_a_silent_keeper_is_left_alone_for_a_moment_and_then_told(keeper: Keeper) -> None:
    keeper.silent = True
    for array in range(100):
        keeper.groups.own(array, ME, 3)
        assert not keeper.groups.lost(ElementId(array, 0), "n0")
        assert not keeper.groups.say(array, "finished")
    assert keeper.asked == 1
    keeper.silent, keeper.clock.now_s = False, 60.0
    keeper.told()
    assert keeper.groups.say(ARRAY, "finished")
    assert [words[0] for words in keeper.heard] == ["own", "finished"]


def test_a_user_whom_this_host_does_not_know_owns_nothing(
    keeper: Keeper, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        keeper.groups.own(ARRAY, "nobody-of-this-name", 3)
    assert (keeper.heard, len(caplog.records)) == ([], 1)


def test_all_groups_are_asked_at_the_same_time(keeper: Keeper) -> None:
    keeper.answers = threading.Barrier(3, timeout=120).wait
    keeper.groups.part({1: [0], 2: [0, 1], 3: [5]})
    assert sorted(keeper.heard) == [("part", 1, [0]), ("part", 2, [0, 1]), ("part", 3, [5])]


def test_groups_that_do_not_answer_hold_up_the_loop_for_a_moment_only() -> None:
    keeper, answered = Keeper(), threading.Event()
    keeper.answers = lambda: answered.wait(60)
    began_s = time.monotonic()
    unheard = keeper.groups.part({array: [0] for array in range(1000)})
    took_s = time.monotonic() - began_s
    answered.set()
    assert took_s < 30
    assert 0 < len(unheard) < 1000, "those whose turn never came; it may wait for the others"


def test_it_is_known_of_whom_the_keeper_was_not_told(keeper: Keeper) -> None:
    leaving = {array: [0] for array in range(300)} | {301: list(range(120))}
    keeper.silent = True
    assert keeper.groups.part(leaving) == leaving
    keeper.silent = False
    assert keeper.groups.part(leaving) == leaving  # a silent one is left alone
    keeper.clock.now_s = 60.0
    assert keeper.groups.part(leaving) == {}
    assert len(keeper.heard) == 301, "more than are asked at once"


def test_what_nobody_expects_as_groups_are_asked_reaches_the_turn(keeper: Keeper) -> None:
    keeper.answers = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        keeper.groups.part({1: [0], 2: [0]})


def test_where_nobody_leaves_or_there_is_no_keeper_nobody_is_asked(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", begun.append)
    keeper.groups.part({})
    assert Groups().part({ARRAY: [1, 2]}) == {}
    assert (keeper.asked, begun) == (0, [])
