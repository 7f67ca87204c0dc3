"""Nodes where the plugin is not loaded: elements run there, and never say that they are up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.keeper.protocol import NoteKind
from tests.controller.setting import Setting
from tests.controller.worlds import ARRAY, element, note

Ends = tuple[str, str] | None
FAILS, COMPLETES = ("failed", "NonZeroExitCode"), ("completed", "None")


class Site(Setting):
    """A site where the plugin is on all nodes but ``mute`` ones, and says when elements are up.

    ``ends`` is how those on mute nodes end at once, None: they run on.
    """

    notes_arrive = True

    def __init__(
        self, nodes: int, *arrays: int, mute: str = "", ends: Ends = FAILS, most: int = 4
    ) -> None:
        self.mute, self.ends = mute.split(), ends
        super().__init__(nodes, *arrays, most=most)

    def turn(self, seconds: float = 5.0) -> None:
        super().turn(seconds)
        for array in tuple(self.slurm.jobs):
            for node, task in self.on(array).items():
                if node not in self.mute:
                    self.controller.take([note(NoteKind.UP, self.now_s, task, node, array=array)])
                elif self.ends is not None:
                    state, reason = self.ends
                    more: Any = {"start_s": self.now_s, "reason": reason, "exit_status": 3}
                    self.slurm.put_(element(task, state, node, array, **more))

    def tries(self, node: str, minutes: int) -> int:
        """How many elements start on a node in so many minutes."""
        before = self.slurm.starts_.count(node)
        for _ in range(12 * minutes):
            self.turn()
        return self.slurm.starts_.count(node) - before

    @property
    def named(self) -> list[str]:
        """The nodes that the status names."""
        found: list[str] = self.controller.status({})["mute_nodes"]
        return found


@pytest.mark.parametrize("ends", [None, FAILS, COMPLETES])
def test_a_node_whose_elements_end_or_run_on_without_a_word_is_left_alone_and_named(
    ends: Ends,
) -> None:
    site = Site(3, ARRAY, mute="n2", ends=ends)
    assert site.tries("n2", minutes=10) == 1
    assert site.named == ["n2"]
    assert site.on().keys() == {"n1", "n3"}


def test_a_node_that_slurm_still_wakes_is_not_mute(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(1, ARRAY, mute="n1", ends=None)
    plain = site.slurm._element
    with monkeypatch.context() as boots:
        boots.setattr(site.slurm, "_element", lambda job: replace(plain(job), boots=True))
        assert site.tries("n1", minutes=10) == 1
    began_s = site.now_s
    monkeypatch.setattr(site.slurm, "_element", lambda job: replace(plain(job), start_s=began_s))
    assert (site.tries("n1", minutes=1), site.named) == (0, [])
    site.tries("n1", minutes=2)
    assert site.named == ["n1"]


def test_what_fails_there_is_no_failure_of_the_script() -> None:
    site = Site(4, ARRAY, mute="n1 n2 n3 n4")
    site.tries("n1", minutes=10)
    assert (site.shown()["state"], site.shown()["failures"]) == ("waiting", 0)
    assert site.slurm.cancelled_ == []


def test_a_short_training_whose_note_is_late_has_finished_and_does_not_run_again() -> None:
    site = Site(1, ARRAY, mute="n1", ends=COMPLETES, most=1)
    site.turn()
    site.turn(1)
    site.controller.take([note(NoteKind.UP, site.now_s, 0, "n1")])
    site.turn()
    assert site.shown()["state"] == "finished"
    assert site.slurm.starts_ == ["n1"]


def test_its_user_is_given_no_advice_on_how_to_start_the_script() -> None:
    site = Site(2, ARRAY, mute="n1 n2", ends=None)
    site.tries("n2", minutes=10)
    assert site.slurm.said == []


def test_a_user_whose_own_elements_are_mute_takes_the_node_from_nobody_else() -> None:
    site = Site(2, ARRAY, mute="n2")
    site.tries("n2", minutes=1)
    site.mute = []
    site.submit(99, 4)
    site.slurm.be_(99, user="bob")
    for _ in range(4):
        site.turn()
    assert "n2" in site.on(99)
    assert site.named == []


def test_after_a_while_the_node_is_tried_again() -> None:
    site = Site(2, ARRAY, mute="n2")
    site.tries("n2", minutes=1)
    site.mute = []
    assert site.tries("n2", minutes=20) == 1
    assert site.named == []


@pytest.mark.parametrize(
    ("ends", "state"), [(None, "running"), (FAILS, "waiting"), (COMPLETES, "finished")]
)
def test_while_no_notes_come_through_silence_says_nothing(ends: Ends, state: str) -> None:
    site = Site(1, ARRAY, mute="n1", ends=ends, most=1)
    site.notes_arrive = False
    site.turn()
    Setting.turn(site, 1)
    assert site.shown()["state"] == state
    assert site.shown()["failures"] == (ends is FAILS)
    assert site.named == []


def test_elements_that_wait_for_a_keeper_that_was_away_have_time_to_say_so() -> None:
    site = Site(1, ARRAY, mute="n1", ends=None)
    site.notes_arrive = False
    site.tries("n1", minutes=10)
    site.notes_arrive = True
    site.turn()
    site.turn()
    site.mute = []
    assert site.tries("n1", minutes=10) == 0
    assert site.named == []


def test_an_element_that_ran_before_the_controller_began_is_not_mute() -> None:
    site = Site(2, ARRAY)
    site.turn()
    site.mute, site.ends = ["n1", "n2"], None
    site.restart()
    assert site.tries("n2", minutes=5) == 0
    assert site.on().keys() == {"n1", "n2"}
