"""A communicator's phases: whatever comes in whatever order, nothing of an abort is committed."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bftrainer_slurm.elastic.inprocess.phases import (
    GENTLY_S,
    HOPELESS_S,
    Cut,
    PeerLostError,
    Phase,
    Phases,
)

pytestmark = pytest.mark.torch


class Communicator(RuleBasedStateMachine):
    """Moves a communicator as the training's thread does, and others that abort it."""

    def __init__(self) -> None:
        super().__init__()
        self.phases = Phases()
        self.aborted = self.closed = False

    @rule()
    def form(self) -> None:
        self.phases.form()

    @rule()
    def begin(self) -> None:
        self.phases.begin()

    @rule()
    def ready(self) -> None:
        self.phases.ready()

    @rule()
    def fail(self) -> None:
        self.phases.fail(RuntimeError("unhandled system error"))

    @rule(now_s=st.floats(0, 100))
    def abort(self, now_s: float) -> None:
        self.phases.abort("a peer is lost", now_s)
        self.aborted = True

    @rule()
    def close(self) -> None:
        self.phases.close()
        self.closed = True

    @precondition(lambda self: self.aborted)
    @rule()
    def look(self) -> None:
        assert self.phases.met_abort()
        assert self.phases.failure is not None

    @invariant()
    def nothing_leads_back(self) -> None:
        if self.closed:
            assert self.phases.phase is Phase.DEAD
        elif self.aborted:
            assert self.phases.phase is Phase.ABORTING
        if self.aborted or self.phases.failure is not None:
            assert not self.phases.usable()


TestCommunicator = Communicator.TestCase


def test_the_first_failure_counts() -> None:
    phases = Phases()
    phases.abort("a peer is lost", 0.0)
    phases.abort("another one", 1.0)
    assert phases.met_abort()
    phases.fail(RuntimeError("later"))
    assert isinstance(phases.failure, PeerLostError)
    assert str(phases.failure) == "a peer is lost"


@pytest.mark.parametrize(
    ("passed_s", "held", "how"),
    [
        (0.0, True, Cut.GENTLY),
        (GENTLY_S, True, Cut.HARD),
        (HOPELESS_S, True, Cut.HARD),
        (HOPELESS_S + 0.1, False, Cut.GIVE_UP),
        (HOPELESS_S + 0.1, True, Cut.END_PROCESS),
    ],
)
def test_who_is_held_for_too_long_is_ended(passed_s: float, held: bool, how: Cut) -> None:
    phases = Phases()
    phases.abort("a peer is lost", 7.0)
    phases.held = held
    assert phases.cut(7.0 + passed_s) is how
