"""Executes a turn's actions: sends requests to Slurm and messages to the keeper.

A refused request does not stop the others. Requests have a budget of time and number. ``after``
returns a trainer's state after an action. Nothing waits for a keeper that does not answer: callers
learn of it, and send the message again later.
"""

from __future__ import annotations

import logging
import pwd
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

from bftrainer_slurm.controller.decide.actions import (
    Action,
    Cancel,
    EndAt,
    Grow,
    Hold,
    Label,
    Revive,
    Shrink,
    Tell,
    Trim,
    array_of,
    describe,
)
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState, change, refuse, release
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.model import ElementId, nodes_of
from bftrainer_slurm.sizes import ANY, Sizes
from bftrainer_slurm.slurm.gateway import Gateway, RefusedError
from bftrainer_slurm.slurm.pacer import Pacer

logger = logging.getLogger(__name__)

SILENT_S = 5.0  # no messages this long to a keeper that did not answer: the loop must go on
_AT_ONCE = 128
_PATIENCE_S = 2.0  # as long as the keeper waits for elements to leave
_TASKS_A_LINE = 50  # so that a line fits into the keeper's limit of 512 bytes
BUDGET_S = 2.0  # after this time the controller reads notes and Slurm before it continues
_LEAST_S = 0.5  # a minimum, if waiting for elements to leave has used up the budget
_REFUSED_S = 30.0
# The order of execution. What frees nodes comes first; elements held too late start by themselves.
_ORDER = (Shrink, Hold, Cancel, EndAt, Trim, Revive, Grow, Label, Tell)


def execute(
    actions: Iterable[Action],
    gateway: Gateway,
    pacer: Pacer,
    groups: Groups,
    began_s: float,
    note: Callable[[Action, bool], None],
) -> float | None:
    """Execute actions as far as the budget allows; it began at ``began_s`` (the pacer's clock).

    ``note`` is called with each action that was tried, and whether Slurm has refused it. A trainer
    without live elements begins a new rendezvous with its first element.

    Returns:
        After how many seconds the first action that was not tried can be tried; None: all were.

    Raises:
        SlurmUnavailableError: slurmctld does not answer; an action may have been executed although
            ``note`` was not called.
    """
    again_in_s = None
    end_s = max(began_s + BUDGET_S, pacer.clock() + _LEAST_S)
    for action in sorted(actions, key=lambda action: _ORDER.index(type(action))):
        rpcs = gateway.grow_rpcs if isinstance(action, Grow) else 1
        if not pacer.wait(rpcs, end_s - pacer.clock()):
            return pacer.due_in_s(rpcs, gateway.queue_rpcs)
        if isinstance(action, Grow) and not _prepare_keeper(action, groups):
            again_in_s = SILENT_S
            continue
        try:
            _do(action, gateway)
            logger.info("%s", describe(action))
            note(action, False)
        except RefusedError as error:
            logger.warning("%s: %s", describe(action), error)
            note(action, True)
            if (done := _rest(action, error)) is not None:
                note(done, False)
    return again_in_s


def _prepare_keeper(grow: Grow, groups: Groups) -> bool:
    """Tell the keeper what new elements need to know; return whether it answered."""
    array = array_of(grow)
    if grow.first and not groups.end(array):
        return False
    if grow.new and not groups.begin(array):
        return False
    return not grow.finished or groups.finish(array)


def _rest(action: Action, error: RefusedError) -> Action | None:
    """Return the action for the elements that Slurm accepted, if it names those it refused."""
    if isinstance(action, Cancel) or not error.elements:
        return None
    done = tuple(one for one in action.elements if one not in error.elements)
    return replace(action, elements=done) if done else None


def _do(action: Action, gateway: Gateway) -> None:
    match action:
        case Grow(elements, places, others, _, limit, excluded, part=part):
            nodes = nodes_of(places)
            gateway.grow(elements, nodes, others, limit, excluded=excluded, part=part)
        case Shrink(elements):
            gateway.shrink(elements)
        case Revive(elements):
            gateway.revive(elements)
        case Hold(elements):
            gateway.hold(elements)
        case EndAt(elements, end_s):
            gateway.end_at(elements, end_s)
        case Trim(elements):
            gateway.trim(elements)
        case Cancel(array):
            gateway.cancel(array)
        case Label(elements, comment):
            gateway.label(elements, comment)
        case Tell((element,), text):
            gateway.tell(element, text)


def after(state: TrainerState, action: Action, refused: bool, now_s: float) -> TrainerState:
    """Return a trainer's state after an action.

    A refused ``Grow`` may still have happened in part; the next look shows it.
    """
    match action:
        case Grow(elements, places):
            state = release(state, elements, places, now_s)
            return refuse(state, nodes_of(places), now_s + _REFUSED_S) if refused else state
        case Tell():
            return replace(state, notified=True)
        case Shrink(elements) if not refused:
            return change(state, elements, Phase.LEAVING, now_s)
        case Revive(elements) if not refused:
            return change(state, elements, Phase.REVIVED, now_s)
        case Trim(elements) if not refused:
            return change(state, elements, Phase.DONE, now_s)
        case Cancel() if not refused:
            return replace(state, cancelled_s=now_s)
    return state


class Groups:
    """Sends messages about trainers' groups to the keeper.

    ``keeper`` returns the identity and the client of the present keeper. A keeper with a new
    identity knows nothing, so it gets everything again. If ``keeper`` is None, no messages are
    sent: simulated trainers need no keeper.
    """

    def __init__(
        self,
        keeper: Callable[[], tuple[str, KeeperClient]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keeper = keeper
        self._clock = clock
        self._identity = ""
        self._announced: dict[int, tuple[int, int, Sizes]] = {}
        self._uids: dict[str, int] = {}
        self._unknown: set[str] = set()  # users without a uid; each is logged once
        self._undelivered: list[ElementId | int] = []  # gone elements and trainers, not sent yet
        self._silent_until_s = float("-inf")

    def own(self, array: int, user: str, want: int, sizes: Sizes = ANY) -> None:
        """Send a trainer's owner, how many nodes it should have, and the ``sizes`` of its group.

        The message is sent once, and again when something changes.
        """
        if self._keeper is None:
            return
        uid = self._uid(user)
        identity, _ = self._keeper()
        if identity != self._identity:
            self._identity = identity
            self._announced.clear()
        if uid is None or self._announced.get(array) == (uid, want, sizes):
            return
        what = f"who owns trainer {array}"
        if self._send(lambda keeper: keeper.own(array, uid, want, sizes), what):
            self._announced[array] = uid, want, sizes

    def part(self, leaving: Mapping[int, Sequence[int]]) -> Mapping[int, Sequence[int]]:
        """Ask these tasks (by array) to leave; return those for which the message was not sent.

        This waits until they have left, at most 2 s. All groups are asked at the same time, so that
        a slow group does not delay others. A request without an answer in time counts as sent: the
        keeper may be waiting for the tasks to leave.
        """
        asked = [
            (array, tasks[begin : begin + _TASKS_A_LINE])
            for array, tasks in leaving.items()
            for begin in range(0, len(tasks), _TASKS_A_LINE)
        ]

        def ask(one: tuple[int, Sequence[int]]) -> bool:
            return self._send(lambda keeper: keeper.part(*one), f"which tasks of {one[0]} leave")

        if not asked or self._keeper is None:
            return {}
        threads = ThreadPoolExecutor(min(_AT_ONCE, len(asked)), "part")
        answers = [threads.submit(ask, one) for one in asked]
        done, _ = wait(answers, _PATIENCE_S)
        threads.shutdown(wait=False, cancel_futures=True)
        failed: dict[int, list[int]] = {}
        for (array, tasks), answer in zip(asked, answers, strict=True):
            # ``result`` raises unexpected exceptions of the thread, so that the turn reports them.
            if answer.cancelled() or (answer in done and not answer.result()):
                failed.setdefault(array, []).extend(tasks)
        return failed

    def lost(self, element: ElementId) -> bool:
        """Report that an element has left unexpectedly; return whether the report arrived."""
        lost = (element.array, element.task)
        return self._send(lambda keeper: keeper.lost(*lost), f"that {element} is lost")

    def report_gone(
        self, new: Iterable[ElementId | int], back: Callable[[ElementId | int], bool]
    ) -> bool:
        """Report elements and trainers (arrays) that are gone; return whether all reports arrived.

        Earlier reports that did not arrive are sent again, unless ``back`` says that the element or
        trainer has returned.
        """
        gone = dict.fromkeys([*(one for one in self._undelivered if not back(one)), *new])
        self._undelivered = [
            one for one in gone if not (self.end(one) if isinstance(one, int) else self.lost(one))
        ]
        return not self._undelivered

    def begin(self, array: int) -> bool:
        """Report that a trainer's next element is its first; return whether the report arrived."""
        return self._send(lambda keeper: keeper.begin(array), f"that {array} begins")

    def finish(self, array: int) -> bool:
        """Report that a training has ended successfully, so that new elements end at once.

        Return whether the report arrived. It is sent each time, because a keeper that has restarted
        does not know it.
        """
        sent = self._send(lambda keeper: keeper.finish(array), f"that {array} has finished")
        return sent and self._keeper is not None

    def end(self, array: int) -> bool:
        """Report that a trainer has no live element, so that its next element begins a new run.

        Return whether the report arrived. If not, no element may start: it would join the old run.
        """
        self._announced.pop(array, None)
        return self._send(lambda keeper: keeper.end_run(array), f"that the run of {array} is over")

    def _send(self, send: Callable[[KeeperClient], object], what: str) -> bool:
        if self._keeper is None:
            return True
        if self._clock() < self._silent_until_s:
            return False
        try:
            _, client = self._keeper()
            send(client)
        except KeeperError as error:
            logger.warning("the keeper was not told %s: %s", what, error)
            self._silent_until_s = self._clock() + SILENT_S
            return False
        return True

    def _uid(self, user: str) -> int | None:
        """Return the user's id; None if this host does not know the user now."""
        if user not in self._uids:
            try:
                self._uids[user] = pwd.getpwnam(user).pw_uid
            except KeyError:
                if user not in self._unknown:
                    logger.error("unknown user %r: their trainers cannot form a group", user)
                self._unknown.add(user)
                return None
        return self._uids[user]
