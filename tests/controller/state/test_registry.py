"""All trainers from one look to the next: allocations, who is over, which nodes are left alone.

Trainers that cannot be handled: each alone is left alone, and the log says so once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.controller.decide.eligibility import out_of_node_hours
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.failing_sizes import NOTHING_TRIED
from bftrainer_slurm.controller.state.history import History, put
from bftrainer_slurm.controller.state.phases import Ended, Event
from bftrainer_slurm.controller.state.registry import TrainerErrors, TrainerRegistry
from bftrainer_slurm.controller.state.statistics import Totals
from bftrainer_slurm.controller.state.trainer_state import release
from bftrainer_slurm.keeper.messages import Engaged
from bftrainer_slurm.model import Element, ElementId, Trainer
from bftrainer_slurm.slurm.gateway import GatewayError, SlurmUnavailableError
from tests.controller.worlds import ARRAY, NOW_S, cases, element, snapshot, trainer

FIRST = ElementId(ARRAY, 0)
SETTINGS = Settings(bad_node_s=900)
HELD = element(0, "held")
ON_N1 = element(0, "running n1", start_s=NOW_S)


def called(id_: str, *elements: Element) -> Trainer:
    """A trainer with this id in its record."""
    plain = trainer(*elements)
    return replace(plain, record=replace(plain.record, id=id_))


class Looking:
    """A registry that looks again and again, ten seconds apart, the first time at ``NOW_S``."""

    def __init__(self, history: History | None = None) -> None:
        self.history = history or History(":memory:")
        self.faults = TrainerErrors()
        self.registry = TrainerRegistry(self.history, SETTINGS, self.faults)
        self.now_s = NOW_S - 10

    def at(self, *trainers: Trainer, ordinary: str = "") -> list[Event]:
        self.now_s += 10
        self.faults.begin()
        seen: Snapshot = snapshot((), trainers, ordinary_nodes=frozenset(ordinary.split()))
        return self.registry.look(replace(seen, time_s=self.now_s))

    @property
    def totals(self) -> Totals:
        return self.history.totals(ARRAY, self.now_s)


def test_each_stay_of_an_element_on_a_node_goes_into_the_history() -> None:
    looking = Looking()
    for look in (ON_N1, element(0, "delayed"), replace(ON_N1, start_s=NOW_S + 20)):
        looking.at(trainer(look))
    totals = looking.totals
    assert (totals.grew, totals.reclaimed, totals.node_s, totals.last_s) == (2, 1, 10.0, None)
    assert looking.history.open_allocations() == {FIRST: ("n1", NOW_S + 20)}


def test_a_trainer_that_slurm_has_forgotten_has_left_its_nodes() -> None:
    looking = Looking()
    looking.at(trainer(ON_N1))
    assert looking.at() == [Ended(FIRST, "n1", NOW_S + 10, "ended")]
    assert looking.registry.view(ARRAY) is None
    assert looking.history.open_allocations() == {}


def test_a_stay_goes_on_over_a_restart_of_the_controller_since_when_slurm_tells() -> None:
    before = Looking()
    before.at(trainer(ON_N1))
    after = Looking(before.history)
    assert after.at(trainer(ON_N1)) == []
    assert after.totals.grew == 1
    assert after.registry.views[0].state.of(0).start_s == NOW_S


AWAY_S = 10 * 3600.0


def restarted(before: Looking) -> Looking:
    """The controller that looks next, a night later, at what the last one left."""
    before.history.write(put("watches", NOW_S - 60, before.now_s))
    after = Looking(before.history)
    after.now_s = before.now_s + AWAY_S
    return after


@cases(
    "elements, node_s",
    as_slurm_says_of_what_it_took_back=([element(0, "delayed", queued_s=NOW_S + 300)], 300.0),
    as_slurm_says_of_what_it_has_started_there_again=(
        [element(0, "running n1", start_s=NOW_S + AWAY_S, queued_s=NOW_S + 300)], 320.0
    ),
    as_slurm_says_of_what_it_has_started_elsewhere=(
        [element(0, "running n2", start_s=NOW_S + AWAY_S, queued_s=NOW_S + 300)], 320.0
    ),
    as_slurm_says_of_what_has_ended=([element(0, "completed n1", end_s=NOW_S + 300)], 300.0),
    when_it_was_last_seen_if_slurm_has_forgotten_it=([element(1, "held")], 10.0),
    when_it_was_last_seen_if_slurm_has_forgotten_its_trainer=([], 10.0),
    not_at_all_if_it_runs_on=([element(0, "running n1", start_s=NOW_S)], AWAY_S + 20),
)  # fmt: skip
def test_what_runs_while_no_controller_works_ends(elements: list[Element], node_s: float) -> None:
    before = Looking()
    for _ in range(2):
        before.at(trainer(ON_N1))
    after = restarted(before)
    after.at(*([trainer(*elements)] if elements else []))
    assert after.totals.node_s == node_s


def test_of_one_that_runs_on_another_node_the_keeper_is_told_which_it_has_left() -> None:
    before = Looking()
    before.at(trainer(ON_N1))
    after = restarted(before)
    after.at(trainer(element(0, "running n2", start_s=NOW_S + AWAY_S)))
    assert after.registry.gone == [(FIRST, "n1")]


def test_a_budget_of_node_hours_goes_on_over_a_night_without_a_controller() -> None:
    before = Looking()
    for _ in range(2):
        before.at(trainer(ON_N1))
    after = restarted(before)
    back = trainer(element(0, "running n1", start_s=NOW_S + AWAY_S, queued_s=NOW_S + 300))
    limited = replace(back.record, spec=replace(back.record.spec, node_hours=1.0))
    after.at(replace(back, record=limited))
    assert out_of_node_hours(after.registry.views, after.history.totals, after.now_s) == {}
    spent_s = after.now_s + 3300
    out = out_of_node_hours(after.registry.views, after.history.totals, spent_s)
    assert "1 node-hours" in (out[ARRAY].over or "")


@pytest.mark.parametrize("restarted", [True, False])
def test_a_trainer_whose_record_has_another_id_is_another_one(restarted: bool) -> None:
    looking = Looking()
    looking.at(called("0000000a", ON_N1))
    looking.registry.put({ARRAY: replace(looking.registry.views[0].state, over="it fails")})
    if restarted:
        looking = Looking(looking.history)
    events = looking.at(called("0000000b", HELD))
    assert (looking.registry.views[0].state.over, looking.totals) == (None, Totals())
    assert not any(isinstance(event, Ended) and event.how == "reclaimed" for event in events)


def test_the_nodes_of_a_trainer_that_cannot_be_handled_are_out_of_reach() -> None:
    looking = Looking()

    def broken(*known: object) -> None:
        raise ZeroDivisionError("of this one")

    looking.history.meet = broken  # type: ignore[method-assign,assignment]
    looking.at(trainer(ON_N1))
    assert looking.registry.views == ()
    assert looking.registry.unhandled_nodes == {"n1"}
    assert "of this one" in looking.faults.why[ARRAY]


def test_so_are_those_on_which_its_elements_may_start() -> None:
    looking = Looking()
    looking.at(trainer(HELD))
    places = frozenset({"n2", "n3"})
    state = release(looking.registry.views[0].state, (FIRST,), places, NOW_S)
    looking.registry.put({ARRAY: state})
    looking.history.begin_allocation = None  # type: ignore[method-assign,assignment]
    looking.at(trainer(element(0, "pending"), element(1, "running n1")))
    assert (looking.registry.views, looking.registry.unhandled_nodes) == ((), {"n1", "n2", "n3"})


def test_who_was_asked_to_leave_is_known_where_the_first_look_at_a_trainer_fails() -> None:
    looking = Looking()
    looking.at(trainer(ON_N1))
    looking.registry.ask([FIRST])
    after = Looking(looking.history)
    measurements = after.registry.measurements
    kept, measurements.kept = measurements.kept, None  # type: ignore[method-assign,assignment]
    after.at(trainer(ON_N1))
    assert after.registry.views == ()
    measurements.kept = kept  # type: ignore[method-assign]
    after.at(trainer(ON_N1))
    assert after.registry.views[0].state.of(0).asked


def test_the_next_controller_knows_who_is_engaged_and_which_sizes_were_tried() -> None:
    looking = Looking()
    looking.at(trainer(ON_N1))
    tried, engaged = NOTHING_TRIED.trains(2, {"n1"}), Engaged(3, frozenset({0}))
    state = replace(looking.registry.views[0].state, tried=tried, engaged=engaged)
    looking.registry.put({ARRAY: state})
    after = Looking(looking.history)
    after.at(trainer(ON_N1))
    (known,) = after.registry.views
    assert (known.state.tried, known.state.engaged) == (tried.lasting, engaged)


@pytest.mark.parametrize("seen", [True, False])
def test_the_next_controller_knows_when_a_trainer_last_had_a_node(seen: bool) -> None:
    looking = Looking()
    held = element(0, "held", queued_s=NOW_S + 7)
    for look in (ON_N1, held) if seen else (ON_N1,):
        looking.at(trainer(look))
    after = Looking(looking.history)
    after.now_s = looking.now_s
    after.at(trainer(held))
    assert after.registry.views[0].state.had_nodes_s == NOW_S + (10 if seen else 7)


def test_all_that_is_known_of_a_trainer_goes_with_it() -> None:
    looking = Looking()
    looking.at(trainer(ON_N1))
    reported = looking.registry.reported(trainer(HELD))
    looking.at(trainer(element(0, "delayed")))
    assert looking.registry.reported(trainer(HELD)) is reported
    looking.at()
    assert looking.registry.views == ()
    looking.at(trainer(HELD))
    assert looking.registry.reported(trainer(HELD)) is not reported


def test_a_trainer_that_can_be_handled_again_is_followed_again() -> None:
    looking = Looking()
    meet = looking.history.meet
    looking.history.meet = None  # type: ignore[assignment]
    looking.at(trainer(ON_N1))
    looking.history.meet = meet  # type: ignore[method-assign]
    looking.at(trainer(ON_N1))
    assert (len(looking.registry.views), looking.registry.unhandled_nodes) == (1, frozenset())
    assert looking.totals.grew == 1


def test_a_trainer_of_which_nothing_changed_is_not_looked_at_again() -> None:
    looking, same = Looking(), trainer(ON_N1)
    looking.at(same)
    (before,) = looking.registry.views
    looking.at(same)
    assert looking.registry.views[0] is before


def turn(faults: TrainerErrors, error: Exception | None, array: int = ARRAY) -> None:
    """Begin a turn, and do something for a trainer that raises this."""
    faults.begin()
    with faults.of(array):
        if error is not None:
            raise error


def test_a_trainer_that_cannot_be_handled_is_named_with_the_reason() -> None:
    faults = TrainerErrors()
    turn(faults, ValueError("its comment"))
    assert faults.why == {ARRAY: "the controller cannot handle it: ValueError: its comment"}


def test_what_is_wrong_with_slurm_is_nobodys_fault() -> None:
    faults = TrainerErrors()
    with pytest.raises(GatewayError):
        turn(faults, SlurmUnavailableError("no answer"))
    assert faults.why == {}


def test_the_same_reason_is_logged_once_and_another_one_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = TrainerErrors()
    for word in ("first", "first", "second", "second"):
        turn(faults, ValueError(word))
    logged = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert [str(error) for error in logged] == ["first", "second"]


def test_within_a_turn_the_same_reason_is_logged_once_too(caplog: pytest.LogCaptureFixture) -> None:
    faults = TrainerErrors()
    for _ in range(3):  # of a trainer whose members tell something again and again
        with faults.of(ARRAY):
            raise ValueError("its report")
    assert len(caplog.records) == 1
