"""When a process gives up that tries in vain to train with others that the keeper hears well.

Losses and partitions are the keeper's matter: they lead to another generation. But it cannot see a
firewall between two nodes, a wrong interface, or memory that is full.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection

from bftrainer_slurm.keeper.messages import Peer

LEAST = 3  # tries
LEAST_S = 60.0  # that they took, with the pauses between: a network may be cut for a while
_LONGEST_PAUSE_S = 5.0
_MAX_CAUSE = 300  # characters
# The other end says by itself what happened to it, or the keeper does.
_HUNG_UP = re.compile(r"(closed|reset) by peer|broken pipe|likely closed", re.IGNORECASE)
_CHECK = (
    "Check that the nodes reach each other on all ports (firewall; PET_LOCAL_ADDR and "
    "GLOO_SOCKET_IFNAME say by which addresses), and that there is memory left"
)


class NoGroupError(RuntimeError):
    """This process cannot train with the others, and no loss of one of them is the reason."""


class Tries:
    """The generations of the same members, one after the other, in which no step was made."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._members: frozenset[Peer] = frozenset()
        self._step: int | None = None  # that the present generation has come to
        self._begun_s = 0.0  # when it began, or made its last step
        self._failed = 0
        self._tried_s = 0.0  # without the waits for a generation, in which nothing can be tried
        self._cause = ""

    def begin(self, members: Collection[Peer]) -> None:
        """A generation of these members begins."""
        before, self._members, self._step = self._members, frozenset(members), None
        if self._members != before:
            self._forget()
        self._begun_s = self._clock()

    def stepped(self, step: int) -> None:
        """The generation has this step; its first one was made by those before."""
        if self._step is not None and step > self._step:
            self._forget()
            self._begun_s = self._clock()
        self._step = step

    def failed(self, cause: str) -> None:
        """The generation has failed here, before the keeper said that it is over."""
        if _HUNG_UP.search(cause):
            return
        self._failed += 1
        self._tried_s += self._clock() - self._begun_s
        self._cause = cause

    def pause(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait before the next try: not at all after a first failure, then ever longer."""
        if self._failed > 1:
            pause_s = min(2.0 ** (self._failed - 2), _LONGEST_PAUSE_S)
            sleep(pause_s)
            self._tried_s += pause_s

    def check(self) -> None:
        """Check that there is any hope.

        Raises:
            NoGroupError: there is none.
        """
        if self._failed >= LEAST and self._tried_s >= LEAST_S:
            tried = f"{self._failed} tries in {self._tried_s:.0f} s"
            raise NoGroupError(
                f"bftrainer: {len(self._members)} processes that are all alive cannot train "
                f"together ({tried}): {one_line(self._cause)}. {_CHECK}"
            )

    def _forget(self) -> None:
        self._failed, self._tried_s = 0, 0.0


def unreachable(place: str, cause: str, tried_s: float) -> str:
    """Say that another node cannot be reached at ``place``, though the keeper hears it."""
    return (
        f"bftrainer: {place} cannot be reached from this node for {tried_s:.0f} s, though the "
        f"keeper hears that one: {one_line(cause)}. {_CHECK}"
    )


def one_line(cause: str) -> str:
    """Return the beginning of an error's text."""
    return cause.strip().partition("\n")[0][:_MAX_CAUSE].rstrip(".")
