"""What was decided is done in order, within a budget, refusals are survived; what is known then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bftrainer_slurm.controller.act.execute import BUDGET_S, Groups, after, execute
from bftrainer_slurm.controller.decide.actions import Action, Cancel, Grow, Hold, Revive, Shrink
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.model import ElementId, ElementState
from bftrainer_slurm.slurm.gateway import RefusedError, SlurmUnavailableError
from bftrainer_slurm.slurm.pacer import BURST, Pacer
from tests.controller.worlds import ARRAY, NOW_S, Clock, element, failed, places, state_of, trainer

A, B, C = (ElementId(ARRAY, task) for task in range(3))


class Recorder:
    """Notes what a gateway and a keeper would be asked.

    ``refused``: what the next change of this name is refused with; ``takes_s`` is for each one.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.name, self.grow_rpcs, self.queue_rpcs = "recorder", 1, 1
        self.asked: list[str] = []
        self.refused: dict[str, Exception] = {}
        self.takes_s = 0.0

    def grow(
        self, elements: Sequence[ElementId], nodes: frozenset[str], *_: Any, **__: Any
    ) -> None:
        self._hear("grow", f"{len(elements)} on {' '.join(sorted(nodes))}")

    def shrink(self, elements: Sequence[ElementId]) -> None:
        self._hear("shrink", str(len(elements)))

    def hold(self, elements: Sequence[ElementId]) -> None:
        self._hear("hold", str(len(elements)))

    def revive(self, elements: Sequence[ElementId]) -> None:
        self._hear("revive", str(len(elements)))

    def cancel(self, array: int) -> None:
        self._hear("cancel", str(array))

    def _hear(self, what: str, words: str) -> None:
        self.clock.now_s += self.takes_s
        self.asked.append(f"{what} {words}")
        if what in self.refused:
            raise self.refused.pop(what)


class Told(Groups):
    """Notes what the keeper would be told, in the order in which the gateway is asked."""

    answers = True

    def __init__(self, gateway: Recorder) -> None:
        super().__init__()
        self._asked = gateway.asked

    def end(self, array: int) -> bool:
        self._asked.append(f"end {array}")
        return True

    def begin(self, array: int) -> bool:
        self._asked.append(f"begin {array}")
        return self.answers

    def finish(self, array: int) -> bool:
        self._asked.append(f"finish {array}")
        return self.answers


@dataclass
class Results:
    """What became of the actions that were tried, and when to go on."""

    done: list[Action] = field(default_factory=list)
    refused: list[Action] = field(default_factory=list)
    again_in_s: float | None = None

    def note(self, action: Action, refused: bool) -> None:
        (self.refused if refused else self.done).append(action)


def do(
    gateway: Recorder,
    *actions: Action,
    per_s: float = 1.0,
    pacer: Pacer | None = None,
    spent_s: float = 0.0,
    results: Results | None = None,
) -> Results:
    results, clock = results or Results(), gateway.clock
    pacer, began_s = pacer or Pacer(per_s, clock, clock.sleep), clock.now_s - spent_s
    results.again_in_s = execute(
        actions,
        gateway,  # type: ignore[arg-type]
        pacer,
        Told(gateway),
        began_s,
        results.note,
    )
    return results


def grow(*elements: ElementId, nodes: str = "n1", first: bool = False) -> Grow:
    return Grow(elements, places(nodes), frozenset(), first)


def test_no_element_of_a_trainer_starts_before_the_keeper_knows_that_it_is_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, gateway = replace(grow(A), new=True), Recorder()
    assert do(gateway, first).done == [first]
    assert [one.split()[0] for one in gateway.asked] == ["begin", "grow"]
    monkeypatch.setattr(Told, "answers", False)
    assert do(Recorder(), first).done == []


def test_no_element_of_a_finished_training_starts_before_the_keeper_knows_that_it_has_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last, gateway = replace(grow(A), finished=True), Recorder()
    assert do(gateway, last).done == [last]
    assert [one.split()[0] for one in gateway.asked] == ["finish", "grow"]
    monkeypatch.setattr(Told, "answers", False)
    gateway = Recorder()
    assert do(gateway, last).done == []
    assert gateway.asked == [f"finish {A.array}"]


def test_what_frees_nodes_comes_first_and_what_takes_them_last() -> None:
    gateway = Recorder()
    shrink = Shrink((C,), "why")
    actions = (grow(A), Revive((B,), "failed"), Cancel(99, "over"), Hold((B,), "why"), shrink)
    do(gateway, *actions)
    kinds = [asked.split()[0] for asked in gateway.asked]
    assert kinds == ["shrink", "hold", "cancel", "revive", "grow"]


def test_a_trainer_with_nothing_alive_begins_a_new_rendezvous() -> None:
    gateway = Recorder()
    do(gateway, grow(A, B, nodes="n1 n2", first=True), grow(C, nodes="n3"))
    assert gateway.asked == ["end 12", "grow 2 on n1 n2", "grow 1 on n3"]


def test_a_refusal_is_returned_and_the_rest_is_done() -> None:
    gateway = Recorder()
    gateway.refused["grow"] = RefusedError("no")
    results = do(gateway, grow(A), grow(B, nodes="n2"))
    assert (results.refused, results.done) == ([grow(A)], [grow(B, nodes="n2")])


def test_what_slurm_did_of_a_request_that_it_refused_in_part_is_done() -> None:
    gateway = Recorder()
    gateway.refused["shrink"] = RefusedError("no", [B])
    results = do(gateway, Shrink((A, B, C), "why"))
    assert (results.refused, results.done) == (
        [Shrink((A, B, C), "why")],
        [Shrink((A, C), "why")],
    )


@pytest.mark.parametrize("named", [(), (A, B)])
def test_where_slurm_does_not_say_which_it_refused_none_of_them_is_done(
    named: tuple[ElementId, ...],
) -> None:
    gateway = Recorder()
    gateway.refused["shrink"] = RefusedError("no", named)
    assert do(gateway, Shrink((A, B), "why")).done == []


def test_what_was_done_is_known_though_slurm_stops_answering() -> None:
    gateway, results = Recorder(), Results()
    gateway.refused["hold"] = SlurmUnavailableError("no answer")
    shrink = Shrink((B,), "why")
    with pytest.raises(SlurmUnavailableError):
        do(gateway, shrink, Hold((C,), "why"), grow(A), results=results)
    assert results == Results(done=[shrink])


def test_what_the_budget_does_not_allow_is_left_in_its_order() -> None:
    gateway = Recorder()
    grows = [grow(A, nodes=f"n{number}") for number in range(BURST + 10)]
    results = do(gateway, *grows)
    assert results.done == grows[: BURST + int(BUDGET_S)]
    assert gateway.clock.now_s <= BUDGET_S


@pytest.mark.parametrize(("per_s", "again_in_s"), [(1.0, 1.0), (0.1, 10.0)])
def test_another_turn_comes_when_there_is_credit(per_s: float, again_in_s: float) -> None:
    grows = [grow(A, nodes=f"n{number}") for number in range(BURST + 3)]
    results = do(Recorder(), *grows, per_s=per_s)
    assert results.again_in_s == pytest.approx(again_in_s)


def test_what_was_left_is_done_at_the_next_turns() -> None:
    clock = Clock()
    pacer = Pacer(1.0, clock, clock.sleep)
    gateway, left = Recorder(clock), [grow(A, nodes=f"n{number}") for number in range(BURST + 10)]
    for _ in range(20):
        left = left[len(do(gateway, *left, pacer=pacer).done) :]
        clock.now_s += 1.0
    assert (left, len(gateway.asked)) == ([], BURST + 10)


def test_commands_that_take_long_use_up_the_budget_too() -> None:
    gateway = Recorder()
    gateway.takes_s = 1.0
    results = do(gateway, *[grow(A, nodes=f"n{number}") for number in range(10)])
    assert 0 < len(results.done) <= BUDGET_S + 1
    assert results.again_in_s is not None


def test_what_came_before_uses_it_up_too_but_not_all_of_it() -> None:
    gateway = Recorder()
    gateway.takes_s = 0.25
    results = do(gateway, *[Shrink((A,), "why")] * 10, spent_s=BUDGET_S)
    assert 1 < len(results.done) < 10
    assert gateway.clock.now_s <= 1


def test_commands_of_several_rpcs_are_paced_by_these() -> None:
    gateway = Recorder()
    gateway.grow_rpcs = 4
    do(gateway, *[grow(A)] * (BURST // 4 + 1), per_s=2.0)
    assert gateway.clock.slept_s == [(4 - BURST % 4) / 2.0]


FIRST, SECOND = ElementId(ARRAY, 0), ElementId(ARRAY, 1)
BEFORE = state_of(
    trainer(element(0, ElementState.RUNNING, "n1"), element(1, ElementState.HELD), failed(2, "n3"))
)
GROW = Grow((SECOND,), places("n2"), frozenset({"n1"}), first=False)


def done(action: Action) -> TrainerState:
    return after(BEFORE, action, False, NOW_S)


def refused(action: Action) -> TrainerState:
    return after(BEFORE, action, True, NOW_S)


def test_what_slurm_has_let_go_is_released() -> None:
    record = done(GROW).of(1)
    assert (record.phase, record.targets) == (Phase.RELEASED, places("n2"))


def test_what_it_has_refused_may_be_released_all_the_same() -> None:
    assert refused(GROW).of(1).phase is Phase.RELEASED  # Slurm does so for --cpus-per-task=64


def test_the_nodes_of_a_refused_growth_are_not_tried_again_at_once() -> None:
    assert refused(GROW).refused["n2"] > NOW_S


def test_an_element_that_was_ended_is_leaving_by_our_doing() -> None:
    record = done(Shrink((FIRST,), "why")).of(0)
    assert (record.phase, record.ours, record.node) == (Phase.LEAVING, True, "n1")


@pytest.mark.parametrize(
    "action", [Shrink((FIRST,), "why"), Revive((FIRST,), "failed"), Cancel(ARRAY, "over")]
)
def test_an_end_that_was_refused_changes_nothing(action: Action) -> None:
    assert refused(action) == BEFORE


def test_what_was_brought_back_is_known_to_have_been() -> None:
    assert done(Revive((ElementId(ARRAY, 2),), "failed")).of(2).phase is Phase.REVIVED


def test_when_a_trainer_was_cancelled_is_known() -> None:
    assert done(Cancel(ARRAY, "over")).cancelled_s == NOW_S


def test_what_is_held_again_the_next_look_tells() -> None:
    assert done(Hold((SECOND,), "why")) == BEFORE


def test_actions_of_one_trainer_add_up() -> None:
    both = after(done(Shrink((FIRST,), "why")), GROW, False, NOW_S)
    assert [both.of(task).phase for task in (0, 1)] == [Phase.LEAVING, Phase.RELEASED]
