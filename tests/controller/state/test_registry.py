"""All trainers from one look to the next: allocations, who is over, which nodes are left alone.

Trainers that cannot be handled: each alone is left alone, and the log says so once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.controller.observe.shared_nodes import SharedNode
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History, put
from bftrainer_slurm.controller.state.phases import Ended, Event
from bftrainer_slurm.controller.state.registry import TrainerErrors, TrainerRegistry
from bftrainer_slurm.controller.state.statistics import Totals
from bftrainer_slurm.controller.state.trainer_state import release
from bftrainer_slurm.model import Element, ElementId, Part, Trainer
from bftrainer_slurm.slurm.gateway import GatewayError, SlurmUnavailableError
from tests.controller.worlds import ARRAY, NOW_S, cases, element, snapshot, trainer

FIRST = ElementId(ARRAY, 0)
SETTINGS = Settings(bad_node_s=900)
HELD = element(0, "held")
ON_N1 = element(0, "running n1", start_s=NOW_S)


class Looking:
    """A registry that looks again and again, ten seconds apart, the first time at ``NOW_S``."""

    def __init__(self, history: History | None = None) -> None:
        self.history = history or History(":memory:")
        self.faults = TrainerErrors()
        self.registry = TrainerRegistry(self.history, SETTINGS, self.faults)
        self.now_s = NOW_S - 10
        self.shared = dict[str, SharedNode]()

    def at(self, *trainers: Trainer, ordinary: str = "") -> list[Event]:
        self.now_s += 10
        self.faults.begin()
        seen: Snapshot = snapshot((), trainers, ordinary_nodes=frozenset(ordinary.split()))
        return self.registry.look(replace(seen, time_s=self.now_s, shared=self.shared))

    @property
    def totals(self) -> Totals:
        return self.history.totals(ARRAY, self.now_s)


def test_a_trainer_that_slurm_has_forgotten_has_left_its_part_of_a_node() -> None:
    looking = Looking()
    looking.shared = {"n1": SharedNode(8, Part(8, 64), Part(8, 64))}
    looking.at(trainer(replace(ON_N1, gpus=2)))
    assert looking.at() == [Ended(FIRST, "n1", NOW_S + 10, "ended")]
    assert looking.registry.view(ARRAY) is None
    assert (looking.totals.node_s, looking.totals.gpu_s) == (2.5, 20.0)
    assert looking.history.open_allocations() == {}


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
    when_it_is_seen_if_slurm_does_not_say=([HELD], AWAY_S + 20),
    and_not_in_the_future=([element(0, "held", queued_s=NOW_S + 2 * AWAY_S)], AWAY_S + 20),
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


@pytest.mark.parametrize("restarted", [True, False])
def test_a_trainer_whose_record_has_another_id_is_another_one(restarted: bool) -> None:
    def called(id_: str, one: Element) -> Trainer:
        plain = trainer(one)
        return replace(plain, record=replace(plain.record, id=id_))

    looking = Looking()
    looking.at(called("0000000a", ON_N1))
    looking.registry.put({ARRAY: replace(looking.registry.views[0].state, over="it fails")})
    if restarted:
        looking = Looking(looking.history)
    events = looking.at(called("0000000b", HELD))
    assert (looking.registry.views[0].state.over, looking.totals) == (None, Totals())
    assert not any(isinstance(event, Ended) and event.how == "reclaimed" for event in events)


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


def test_nodes_that_a_trainer_that_cannot_be_handled_has_or_may_get_are_out_of_reach() -> None:
    looking = Looking()
    looking.at(trainer(HELD))
    places = frozenset({"n2", "n3"})
    state = release(looking.registry.views[0].state, (FIRST,), places, NOW_S)
    looking.registry.put({ARRAY: state})
    begin, looking.history.begin_allocation = looking.history.begin_allocation, None  # type: ignore[method-assign,assignment]
    now = trainer(element(0, "pending"), element(1, "running n1"))
    looking.at(now)
    assert (looking.registry.views, looking.registry.unhandled_nodes) == ((), {"n1", "n2", "n3"})
    looking.history.begin_allocation = begin  # type: ignore[method-assign]
    looking.at(now)
    again = len(looking.registry.views), looking.registry.unhandled_nodes
    assert again == (1, frozenset()), "it can be handled again"


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


def test_a_trainer_that_cannot_be_handled_is_named_with_the_reason_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = TrainerErrors()
    for word in ("its comment", "its comment", "another"):
        faults.begin()
        for _ in range(3):  # its members tell something again and again
            with faults.of(ARRAY):
                raise ValueError(word)
        assert faults.why == {ARRAY: f"the controller cannot handle it: ValueError: {word}"}
    logged = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert [str(error) for error in logged] == ["its comment", "another"]


def test_what_is_wrong_with_slurm_is_nobodys_fault() -> None:
    faults = TrainerErrors()
    with pytest.raises(GatewayError), faults.of(ARRAY):
        raise SlurmUnavailableError("no answer")
    assert faults.why == {}
