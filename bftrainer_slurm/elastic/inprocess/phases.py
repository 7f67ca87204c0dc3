"""The phases of a communicator, and what each of them allows: a pure machine that is told the time.

FORMING leads to READY, and a step from READY to STEPPING and back. An abort leads from each of them
to ABORTING, and closing to DEAD. Nothing leads back, so a step that an abort has met is never
committed, whatever its collectives say of themselves.
"""

from __future__ import annotations

from enum import Enum, auto

# gloo closes a connection at once when it reads its end; stores may not.
GENTLY_S = 1.0
# Now and then gloo forgets a send if its connection is closed just then (torch 2.13; see
# ``Connections.shut_down``). After this long, all that will ever fail has failed, and what cannot
# be interrupted, as the making of NCCL's communicator, will not end.
HOPELESS_S = 5.0


class PeerLostError(Exception):
    """A collective failed: the step in flight cannot be committed."""


class Phase(Enum):
    """What a communicator is doing."""

    FORMING = auto()  # its members connect
    READY = auto()  # it has nothing to do
    STEPPING = auto()  # a step or a state depends on its collectives
    ABORTING = auto()  # a peer is lost: all that is under way is ended, nothing more is begun
    DEAD = auto()  # it has no connection any more


class Cut(Enum):
    """How to end what is under way."""

    GENTLY = auto()
    HARD = auto()
    GIVE_UP = auto()  # and free the threads that wait for what will not end
    END_PROCESS = auto()  # they cannot be freed


class Phases:
    """One communicator's; the training's thread moves it, and others only abort it."""

    def __init__(self) -> None:
        self.failure: Exception | None = None  # the first one
        self.aborted: str | None = None  # why
        self.over = False
        self._own = Phase.READY  # where the training's thread has come to
        self._aborted_s = 0.0
        self.held = False  # whether it is in what cannot be interrupted

    @property
    def phase(self) -> Phase:
        """The present one."""
        if self.over:
            return Phase.DEAD
        return self._own if self.aborted is None else Phase.ABORTING

    def form(self) -> None:
        """Begin to connect."""
        self._own = Phase.FORMING

    def begin(self) -> None:
        """Begin a step, or to share a state."""
        self._own = Phase.STEPPING

    def ready(self) -> None:
        """All members are connected, or what was begun is complete."""
        self._own = Phase.READY

    def fail(self, error: Exception) -> None:
        """Remember that a collective failed."""
        if self.failure is None:
            self.failure = error

    def abort(self, why: str, now_s: float) -> None:
        """A peer is lost. This comes before anything is aborted: ``met_abort`` relies on it."""
        if self.aborted is None:
            self._aborted_s = now_s
            self.aborted = why

    def close(self) -> None:
        """Nothing will be done any more."""
        self.over = True

    def met_abort(self) -> bool:
        """Return whether a result that is seen now may be garbage; if so, that is a failure."""
        if self.aborted is not None:
            self.fail(PeerLostError(self.aborted))
        return self.aborted is not None

    def usable(self) -> bool:
        """Return whether a collective may be begun."""
        return not self.met_abort() and self.failure is None

    def cut(self, now_s: float) -> Cut:
        """Return what to do in ABORTING, again and again until it is over."""
        passed_s = now_s - self._aborted_s
        if passed_s < GENTLY_S:
            return Cut.GENTLY
        if passed_s <= HOPELESS_S:
            return Cut.HARD
        return Cut.END_PROCESS if self.held else Cut.GIVE_UP
