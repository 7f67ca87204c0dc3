"""The controller as a process: its state folder, its keeper, its signals, and the waiting."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from bftrainer_slurm.controller.act.groups import KeeperGroups
from bftrainer_slurm.controller.act.pacing import Pacer
from bftrainer_slurm.controller.leadership import SharedHistory, take_the_lead
from bftrainer_slurm.controller.loop import Controller
from bftrainer_slurm.controller.observe.feed import Feed
from bftrainer_slurm.controller.publish.keys import key_in, link_of
from bftrainer_slurm.controller.publish.publisher import PUBLISH_EVERY_S, Publisher
from bftrainer_slurm.controller.publish.status import no_status
from bftrainer_slurm.controller.publish.systemd import notify
from bftrainer_slurm.controller.settings import Settings, SettingsError
from bftrainer_slurm.controller.settings_file import Configured
from bftrainer_slurm.controller.state.counts import MeteredGateway
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.profiles import Profiles
from bftrainer_slurm.controller.world import World
from bftrainer_slurm.keeper.credentials import CredentialError, Means, Munge, read_secret
from bftrainer_slurm.keeper.home import find_or_start, private_folder
from bftrainer_slurm.model import Trainer
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.slurm.gateway import Gateway, GatewayError, SlurmUnavailableError

logger = logging.getLogger(__name__)

_BACKLOG_S = 10.0  # a keeper that does not answer must not keep trainers from their nodes
_COALESCE_S = 0.05  # elements of one reclaim send their notes together
_CLOCK_SET_S = 5.0
_FAILURES_ENOUGH = 3  # failed turns in a row: then the controller's own state may be the reason


class AlreadyRunningError(Exception):
    """Another controller works on this state folder."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose trainers this controller runs: ``user`` None means everybody's (site mode)."""

    user: str | None

    def mine(self, trainer: Trainer, partition: str) -> bool:
        """Whether this controller runs the trainer."""
        if trainer.partition != partition:
            return False
        if self.user is None:
            return not trainer.record.personal
        return trainer.user == self.user and trainer.record.personal

    @property
    def mode(self) -> str:
        """The name of the mode."""
        return "site" if self.user is None else "personal"


def run(
    state: Path, scope: Scope, settings: Settings, gateway: Gateway, reread: Callable[[], Settings]
) -> None:
    """Work until SIGTERM or SIGINT; the trainers go on without us. After SIGHUP a site's
    settings are ``reread``.

    Raises:
        AlreadyRunningError: the state folder is in use.
        StateError: others can write to the state folder.
        KeeperError: the keeper could not be started.
        HistoryError: the history file cannot be used.
        SettingsError: the site's key cannot be used.
        KeyboardInterrupt: SIGINT has ended it, as it should.
    """
    shared = Path(settings.shared) if settings.shared else None
    configured = Configured(settings, reread)
    if scope.user and settings.metrics:
        told = "metrics=%s: they are the reader's: run 'bftrainer reader --listen %s'"
        logger.warning(told, settings.metrics, settings.metrics)
    if scope.user is None:  # a user's own controller ends with its terminal
        signal.signal(signal.SIGHUP, lambda *_: configured.ask())
    with ExitStack() as stack:
        stack.enter_context(_sole_user_of(state))
        if shared is not None:
            gateway = take_the_lead(shared, state, gateway, beat=_waits)
        planner = stack.enter_context(Planner(time_limit_s=settings.plan_limit_s))
        means = Means() if scope.user is not None else _means_of_site(settings)
        find_keeper = partial(find_or_start, state, settings.listen, means=means, shared=shared)
        feed = Feed(find_keeper(), find_keeper)
        history = SharedHistory(state, shared) if shared else History(state / "history.sqlite")
        pacer = Pacer(settings.rpcs_per_s, time.monotonic, time.sleep)
        common = partial(
            World,
            gateway=cast(Gateway, MeteredGateway(gateway, history.counts, pacer.draw)),
            planner=planner,
            history=history,
            groups=KeeperGroups(lambda: feed.keeper),
            clock=time.time,
            pacer=pacer,
            mine=lambda trainer: scope.mine(trainer, settings.partition),
            hears=lambda: feed.hears,
        )
        logger.info(
            "controller in %s mode, gateway %s, keeper at %s, state in %s",
            *(scope.mode, gateway.name, feed.keeper[1].address, state),
        )
        feed.start()
        about = {
            "mode": scope.mode,
            "user": scope.user,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "gateway": gateway.name,
            "partition": settings.partition,
            "since_s": time.time(),
            "metrics": None if scope.user else settings.page,
        }

        def begun() -> Controller:
            return Controller(common(appraiser=Profiles(history.lessons)), configured.settings)

        secret = key_in(shared or state) if about["metrics"] else ""
        stop = _Stop()
        _Work(begun, feed, about, configured, secret).go_on(stop)
        feed.stop()
        history.close()
    if stop.interrupted:
        raise KeyboardInterrupt


def _waits() -> None:
    """Tell systemd that the controller is well while it waits for its host's turn."""
    notify("READY=1\nWATCHDOG=1")


def _means_of_site(settings: Settings) -> Means:
    """Return how members prove to the keeper whose they are; warn if they cannot.

    Raises:
        SettingsError: the site's key cannot be used.
    """
    means = settings.means
    try:
        if means.key_file is not None:
            read_secret(means.key_file)
        else:
            Munge(means.munge_socket).encode("")
    except CredentialError as error:
        if means.key_file is not None:
            raise SettingsError(f"key_file: {error}") from error
        logger.warning("%s: trainers can only use torchrun's own rendezvous", error)
    return means


class _Work:
    """The controller's turns, one after the other, even if they fail.

    It restarts with a fresh state if the clock is set, its settings change, or turn after turn
    fails: Slurm and its history tell it all that it has to know.
    """

    def __init__(
        self,
        make: Callable[[], Controller],
        feed: Feed,
        about: Mapping[str, Any],
        configured: Configured,
        page_secret: str = "",
    ) -> None:
        self._make = make
        self._configured = configured
        self._controller = make()
        self._feed = feed
        self.publisher = Publisher(feed)
        self._page_secret = page_secret
        self.about = dict(about) | {"failed_turns": 0, "error": None}
        self._failed = 0  # turns in a row
        self._ahead_s = time.time() - time.monotonic()
        self._keeper = ""

    def go_on(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set."""
        self.publisher.start()
        notify("READY=1")
        while not stop.is_set():
            notify("WATCHDOG=1")
            try:
                self._begin_anew_if_needed()
                turned = self._step()
            except Exception as error:
                turned = True
                self._note_failure(error)
            if turned or self.publisher.age_s >= PUBLISH_EVERY_S:
                self.publisher.show(self._status())
        notify("STOPPING=1")
        self.publisher.stop(self._status(error="stopped"))
        logger.info("stopped; running trainers go on")

    def _status(self, **changes: str) -> dict[str, Any]:
        """Return the status, or one that says why it cannot be made."""
        about = self.about | {"settings": self._configured.trouble} | changes
        try:
            status = self._controller.status(about)
        except Exception as error:
            logger.exception("no status")
            return no_status(time.time(), about | {"error": f"no status: {error}"})
        if self._page_secret:
            for one in status["trainers"]:
                one["page"] = link_of(
                    about["metrics"], one["array"], one["user"], self._page_secret
                )
        return status

    def _step(self) -> bool:
        """Listen to notes for a while; return whether it was time for a turn.

        The first turn waits for all that the keeper remembers: who has finished must not run again.
        """
        controller, until_s = self._controller, time.monotonic() + _BACKLOG_S
        while not self._feed.caught_up and not controller.looked and time.monotonic() < until_s:
            controller.take(self._feed.wait(_COALESCE_S))
        due_s = controller.schedule.due_s() - time.time()
        controller.take(self._feed.wait(min(due_s, PUBLISH_EVERY_S)))
        identity, _ = self._feed.keeper
        if identity != self._keeper:  # a keeper that knows nothing yet
            self._keeper = identity
            controller.introduce()
        if not controller.schedule.is_due(time.time()):
            return False
        controller.take(self._feed.wait(_COALESCE_S))
        controller.turn()
        self._failed, self.about["error"] = 0, controller.trouble
        return True

    def _note_failure(self, error: Exception) -> None:
        """Log and publish the failure; the schedule says when the next turn is due.

        It is no failure of ours if slurmctld is away. Any other answer of Slurm may be one.
        """
        if not isinstance(error, SlurmUnavailableError):
            self._failed += 1
            self.about["failed_turns"] += 1
        if isinstance(error, GatewayError):
            self.about["error"] = str(error)
            logger.error("%s", error)
            return
        self.about["error"] = f"a turn failed: {type(error).__name__}: {error}"
        logger.exception("a turn failed; trying again")

    def _begin_anew_if_needed(self) -> None:
        ahead_s = time.time() - time.monotonic()
        set_by_s = ahead_s - self._ahead_s
        clock_was_set = abs(set_by_s) > _CLOCK_SET_S
        if self._configured.reload_if_asked():
            self._anew()
        elif clock_was_set or self._failed >= _FAILURES_ENOUGH:
            why = f"the clock was set by {set_by_s:+.0f} s" if clock_was_set else "turns fail"
            logger.warning("%s: the controller restarts with a fresh state", why)
            before = self._controller.schedule
            self._anew()
            if not clock_was_set:
                self._controller.schedule.go_on_waiting(before)
        self._ahead_s = ahead_s

    def _anew(self) -> None:
        self._controller, self._failed = self._make(), 0
        self._feed.again()


class _Stop(threading.Event):
    """Set by SIGTERM and SIGINT; ``interrupted``: by the latter."""

    interrupted = False

    def __init__(self) -> None:
        super().__init__()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._heed)

    def _heed(self, number: int, _: object) -> None:
        self.interrupted = number == signal.SIGINT
        self.set()


@contextmanager
def _sole_user_of(state: Path) -> Iterator[None]:
    private_folder(state)
    with (state / "controller.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(f"another controller works in {state}") from None
        yield
