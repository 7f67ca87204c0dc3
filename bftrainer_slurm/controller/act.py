"""Carries out decisions: requests to Slurm, within a budget, and what the keeper is told of groups.

Nothing waits for a keeper that does not answer: callers learn of it, and send the message again
later.
"""

from __future__ import annotations

import logging
import pwd
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from bftrainer_slurm.controller.decide.actions import ORDER, Action, Grow
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.messages import NOBODY, Engaged
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.sizes import ANY, Sizes
from bftrainer_slurm.slurm.gateway import JOB_SUBMIT, Gateway, RefusedError, may_be_job_submit

logger = logging.getLogger(__name__)

# So many actions a turn, and then a pause, so that slurmctld gets 10 requests a second at most in
# the long run; one that slows our commands down, or refuses them, gets fewer.
MOST_ACTIONS = 50
_PAUSE_S = 5.0
BUDGET_S = 2.0  # after this time the controller reads notes and Slurm before it continues
_LEAST_S = 0.5  # a minimum, if waiting for elements to leave has used up the budget
SILENT_S = 5.0  # no messages this long to a keeper that did not answer: the loop must go on
_AT_ONCE = 128
_PATIENCE_S = 2.0  # as long as the keeper waits for elements to leave


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
        self._announced: dict[int, tuple[object, ...]] = {}  # to which keeper, and what, by array
        self._uids: dict[str, int | None] = {}  # None: this host did not know the user yet
        self._silent_until_s = float("-inf")

    def own(
        self,
        array: int,
        user: str,
        want: int,
        sizes: Sizes = ANY,
        engaged: Callable[[], Engaged] = lambda: NOBODY,
    ) -> None:
        """Send a trainer's owner, how many nodes it should have, and the ``sizes`` of its group.

        The message is sent once, and again when something changes. A new keeper is told who is
        ``engaged``, so that it begins nothing beside them.
        """
        if self._keeper is None:
            return
        uid, (identity, _) = self._uid(user), self._keeper()
        announced = identity, uid, want, sizes
        if uid is None or self._announced.get(array) == announced:
            return
        what = f"who owns trainer {array}"
        knows = self._announced.get(array, ("",))[0] == identity
        took = NOBODY if knows else engaged()
        if self._send(lambda keeper: keeper.own(array, uid, want, sizes, took), what):
            self._announced[array] = announced

    def part(self, leaving: Mapping[int, Sequence[int]]) -> Mapping[int, Sequence[int]]:
        """Ask these tasks (by array) to leave; return those for which the message was not sent.

        This waits until they have left, at most 2 s. All groups are asked at the same time, so that
        a slow group does not delay others. A request without an answer in time counts as sent: the
        keeper may be waiting for the tasks to leave.
        """
        asked = list(leaving.items())

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

    def lost(self, element: ElementId, node: str) -> bool:
        """Report that an element has left this node; return whether the report arrived."""
        array, task = element
        what = f"that {element} has left {node}"
        return self._send(lambda keeper: keeper.lost(array, task, node), what)

    def say(self, array: int, what: str) -> bool:
        """Report that a trainer "begins", has "finished", or that its run has "ended".

        Return whether the report arrived. If it did not, no element may start: it would join the
        old run, or train again. It is sent each time, as a keeper that has restarted does not know.
        """
        if what == "ended":
            self._announced.pop(array, None)
        sent = self._send(lambda keeper: keeper.say(array, what), f"that trainer {array} {what}")
        return sent and (what != "finished" or self._keeper is not None)

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
        """Return the user's id; None if this host does not know the user now, which is logged."""
        if self._uids.get(user) is None:
            try:
                self._uids[user] = pwd.getpwnam(user).pw_uid
            except KeyError:
                if user not in self._uids:
                    logger.error("unknown user %r: their trainers cannot form a group", user)
                self._uids[user] = None
        return self._uids[user]


def execute(
    actions: Iterable[Action],
    gateway: Gateway,
    clock: Callable[[], float],
    groups: Groups,
    began_s: float,
    note: Callable[[Action, str], None],
    most: float = MOST_ACTIONS,
    of: Callable[[int], AbstractContextManager[None]] = lambda array: nullcontext(),
) -> float | None:
    """Execute ``most`` actions, as far as the budget allows; it began at ``began_s``.

    ``note`` is called with each action that was tried, and Slurm's words if it has refused it. A
    refusal does not stop the others, nor does an error in what ``of`` runs for a trainer. A trainer
    without live elements begins a new rendezvous with its first element.

    Returns:
        After how many seconds the first action that was not tried can be tried; None: all were.

    Raises:
        SlurmUnavailableError: slurmctld does not answer; an action may have been executed although
            ``note`` was not called.
    """
    again_in_s = None
    end_s = max(began_s + BUDGET_S, clock() + _LEAST_S)
    for tried, action in enumerate(sorted(actions, key=lambda one: ORDER.index(type(one)))):
        if tried >= most:
            return _PAUSE_S
        if clock() > end_s:
            return 0.0
        with of(action.array):
            if isinstance(action, Grow) and not _prepare_keeper(action, groups):
                again_in_s = SILENT_S
            else:
                _try(action, gateway, note)
    return again_in_s


def _try(action: Action, gateway: Gateway, note: Callable[[Action, str], None]) -> None:
    try:
        action.send(gateway)
        logger.info("%s", action)
        note(action, "")
    except RefusedError as error:
        hint = f"; {JOB_SUBMIT}" if may_be_job_submit(str(error)) else ""
        logger.warning("%s: %s%s", action, error, hint)
        note(action, str(error))
        done = tuple(one for one in action.elements if one not in error.elements)
        if error.elements and done:
            note(replace(action, elements=done), "")


def _prepare_keeper(grow: Grow, groups: Groups) -> bool:
    """Tell the keeper what new elements need to know; return whether it answered."""
    news = (grow.first, "ended"), (grow.new, "begins"), (grow.finished, "finished")
    return all(groups.say(grow.array, what) for due, what in news if due)
