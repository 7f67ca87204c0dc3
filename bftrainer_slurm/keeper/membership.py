"""An agent's side of its group: what our rendezvous handler calls. Standard library only.

Training goes on while the keeper is away. What a message leads to is decided in the keeper, by
``rendezvous``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from bftrainer_slurm.keeper.conversation import Conversation
from bftrainer_slurm.keeper.messages import (
    Change,
    Done,
    Dropped,
    Finished,
    Finishing,
    FromKeeper,
    Generation,
    Held,
    Identity,
    Leave,
    Left,
    Measured,
    Ready,
    Released,
    StoreAt,
    Waits,
    encode,
    parse_from_member,
)
from bftrainer_slurm.keeper.protocol import good_measures

logger = logging.getLogger(__name__)

PROGRESS_S = 1.0

Notice = Change | Generation | Released | Finished | Dropped


class MembershipError(Exception):
    """No generation will come for this process as it is now."""


class ReleasedError(MembershipError):
    """The planned leave is done: wait for Slurm to end this process, and never exit with 0."""


class FinishedError(MembershipError):
    """The training has finished without this process, which ends with ``code``, and begins nothing.

    The code is not 0 where the training fails for want of what its script's node had.
    """

    def __init__(self, code: int = 0) -> None:
        super().__init__("the training has finished")
        self.code = code


class DroppedError(MembershipError):
    """The keeper has declared this process lost: call ``ready`` to join again."""


class Membership(Conversation):
    """This process's place in its group. All methods may be called from any thread.

    ``on_notice`` is called in the conversation's thread, and must not wait for anything.
    ``launcher``: what has started this process, one of LAUNCHERS.

    Raises:
        ProtocolError: a field of ``identity`` is invalid, or ``keeper`` is not an address.
    """

    def __init__(
        self,
        keeper: str,
        identity: Identity,
        secret: bytes,
        on_notice: Callable[[Notice], None] | None = None,
        launcher: str = "",
    ) -> None:
        super().__init__(keeper, identity, secret)
        self._keeper = keeper
        self._launcher = launcher
        self._on_notice = on_notice
        # What is known, guarded by _state. `change` is also read without it.
        self.change: Change | None = None  # announced since the last generation
        # Written in the keeper's order: an end is known however soon it follows its generation.
        self.why = ""  # the last generation that ended did so, in the keeper's word
        self.over = threading.Event()  # the present generation has ended
        self._given: Generation | None = None  # not returned yet
        self._over: MembershipError | None = None  # why no generation will ever come
        self._dropped = False
        self._progress: Measured | None = None
        self._progress_s = float("-inf")
        self._complaint = ""

    def ready(self, cause: str, error: str = "") -> None:
        """Say that this agent's processes stand still, and it waits for a generation.

        ``cause`` is ``new``, ``change`` or ``failed``; ``error`` has the last lines of a failure.
        """
        with self._state:
            self._dropped = False
            self._standing.pop(StoreAt, None)
            self._stand(Ready(cause, error, self._launcher))

    def wait_generation(self, timeout_s: float | None = None) -> Generation:
        """Wait for the next generation and return it; call ``ready`` before.

        Raises:
            ReleasedError: this process has left as planned.
            FinishedError: the training has finished.
            DroppedError: it was declared lost, and has not called ``ready`` since.
            MembershipError: it was closed.
            TimeoutError: no generation came in time.
        """
        with self._state:
            if not self._state.wait_for(self._answered, timeout_s):
                raise TimeoutError(f"no generation within {timeout_s} s")
            if self._given is not None:
                given, self._given = self._given, None
                return given
            raise self._over or DroppedError("declared lost; say ready to join anew")

    def offer_store(self, generation: int, endpoint: str) -> None:
        """Say as rank 0 where the generation's store listens (HOST:PORT).

        Raises:
            ProtocolError: ``endpoint`` is invalid.
        """
        offer = StoreAt(endpoint, generation)
        parse_from_member(encode(offer))
        with self._state:
            self._stand(offer)

    def leave(self) -> None:
        """Say that SIGTERM has come, and the others should go on without this process."""
        with self._state:
            self._stand(Leave())

    def finishing(self) -> None:
        """Say as an agent that its processes have ended well, and it waits for the others'."""
        with self._state:
            self._stand(Finishing())

    def progress(self, **measures: float) -> None:
        """Report progress, once a second at most; the newest wins, without invalid measures."""
        told = good_measures(measures)
        with self._state:
            self._progress = Measured(told) if told else None

    def done(self) -> None:
        """Say that this process ended well, and close."""
        with self._state:
            if self._progress is not None:
                self._say(self._progress)
            self._say(Done())
        self.close()

    def close(self) -> None:
        """End the connection; without ``done`` the others take it for a loss."""
        self._end(MembershipError("closed"))
        self._join_thread()

    # Called with _state held.

    @property
    def _waits(self) -> bool:
        """Whether this process has said that it is ready, and has no answer yet."""
        return Ready in self._standing

    def _answered(self) -> bool:
        dropped = self._dropped and not self._waits
        return self._given is not None or self._over is not None or dropped

    def _end(self, why: MembershipError) -> None:
        with self._state:
            self._over = self._over or why
            self._state.notify_all()
        self._stop()

    # In the conversation's thread.

    def _on_failure(self, error: Exception) -> None:
        logger.error(
            "bftrainer: this process takes no part in its trainer any more", exc_info=error
        )
        self._end(MembershipError(f"it ended with {error!r}"))

    def _on_loss(self, error: Exception | None) -> None:
        if error is not None and str(error) != self._complaint and self._over is None:
            logger.warning("bftrainer: no connection to the keeper at %s: %s", self._keeper, error)
        self._complaint = str(error or "")
        with self._state:
            if self.change is not None and self.change.planned:
                self.change = None  # the keeper will say it again
            super()._on_loss(error)

    def _on_turn(self, now_s: float) -> list[bytes]:
        with self._state:
            if self._progress is not None and now_s - self._progress_s >= PROGRESS_S:
                self._outgoing.append(encode(self._progress))
                self._progress, self._progress_s = None, now_s
            return super()._on_turn(now_s)

    def _on_message(self, message: FromKeeper) -> None:
        with self._state:
            notice = self._learn(message)
            self._state.notify_all()
        if notice is not None and self._on_notice is not None:
            self._on_notice(notice)

    def _learn(self, message: FromKeeper) -> Notice | None:
        match message:
            case Change():
                self.change, self.why = message, message.why
                self.over.set()
            case Generation():
                self.change = None
                self.over.clear()
                self._standing.pop(Ready, None)
                self._given = message
                self._held = Held(message.number, message.rank, message.world)
            case Released() if Leave in self._standing:
                self._end(ReleasedError("left as SIGTERM has come"))
            case Released():
                self._over = self._over or ReleasedError("left as planned")
                self._held, self._standing = None, {}
                self._stand(Left())  # who was to end this process may know nothing of it any more
            case Finished(code):
                self._end(FinishedError(code))
            case Waits(why):
                logger.warning("bftrainer: %s", why)
            case Dropped(why):
                self._held = None
                if self._waits:
                    return None  # it waits at a boundary, and joins again by itself
                self._dropped = True
                self.change, self.why = Change(planned=False, why=why), "loss"
                self.over.set()
        return message if isinstance(message, Notice) else None
