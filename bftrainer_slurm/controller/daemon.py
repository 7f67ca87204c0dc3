"""The controller as a process: its state folder, its keeper, its signals, and the waiting."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer_slurm.controller.act import Pacer
from bftrainer_slurm.controller.feed import Feed
from bftrainer_slurm.controller.groups import KeeperGroups
from bftrainer_slurm.controller.history import History
from bftrainer_slurm.controller.learnt import Learnt
from bftrainer_slurm.controller.loop import Controller, World
from bftrainer_slurm.controller.settings import Settings, SettingsError
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import (
    JOB,
    MUNGE,
    CredentialError,
    Means,
    Munge,
    read_secret,
)
from bftrainer_slurm.keeper.home import find_or_start
from bftrainer_slurm.keeper.private import private_folder
from bftrainer_slurm.model import Trainer
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.slurm.gateway import Gateway, GatewayError

logger = logging.getLogger(__name__)

_PUBLISH_EVERY_S = 2.0
_COALESCE_S = 0.05  # elements of one reclaim speak at once


class AlreadyRunningError(Exception):
    """Another controller works on this state folder."""


@dataclass(frozen=True, slots=True)
class Role:
    """For whom this controller works: ``user`` None means everybody's trainers (site mode)."""

    user: str | None

    def mine(self, trainer: Trainer, partition: str) -> bool:
        """Whether a trainer is this controller's to run."""
        if trainer.partition != partition:
            return False
        if self.user is None:
            return not trainer.record.personal
        return trainer.user == self.user and trainer.record.personal

    @property
    def mode(self) -> str:
        """The name of the mode."""
        return "site" if self.user is None else "personal"


def run(state: Path, role: Role, settings: Settings, gateway: Gateway) -> None:
    """Work until SIGTERM or SIGINT; the trainers go on without us.

    Raises:
        AlreadyRunningError: the state folder is in use.
        StateError: others can write to the state folder.
        KeeperError: the keeper could not be started.
        HistoryError: the history file cannot be used.
        SettingsError: the site's key cannot be used.
    """
    with _sole_user_of(state), Planner(time_limit_s=settings.plan_limit_s) as planner:
        find_keeper = _finder(state, role, settings)
        feed = Feed(find_keeper(), find_keeper)
        history = History(state / "history.sqlite")
        world = World(
            gateway=gateway,
            planner=planner,
            history=history,
            groups=KeeperGroups(lambda: feed.keeper),
            clock=time.time,
            pacer=Pacer(settings.commands_per_s, time.monotonic, time.sleep),
            mine=lambda trainer: role.mine(trainer, settings.partition),
            appraiser=Learnt(history.lessons),
        )
        logger.info(
            "controller in %s mode, gateway %s, keeper at %s, state in %s",
            *(role.mode, gateway.name, feed.keeper[1].address, state),
        )
        feed.start()
        _work(Controller(world, settings), feed, role, gateway)
        history.close()


def _finder(state: Path, role: Role, settings: Settings) -> Callable[[], KeeperClient]:
    """Return what finds or starts the keeper, to which members prove whose they are."""
    means = Means() if role.user is not None else _means_of_site(settings)
    return lambda: find_or_start(state, settings.listen, means=means)


def _means_of_site(settings: Settings) -> Means:
    if settings.key_file:
        try:
            read_secret(Path(settings.key_file))
        except CredentialError as error:
            raise SettingsError(f"key_file: {error}") from error
        return Means(JOB, key_file=Path(settings.key_file))
    socket = settings.munge_socket or None
    try:
        Munge(socket).encode("")
    except CredentialError as error:
        logger.warning("%s: trainers can only use torchrun's own rendezvous", error)
    return Means(MUNGE, socket)


def _work(controller: Controller, feed: Feed, role: Role, gateway: Gateway) -> None:
    stop = _stop_signal()
    about: dict[str, Any] = {
        "mode": role.mode,
        "user": role.user,
        "pid": os.getpid(),
        "gateway": gateway.name,
        "since_s": time.time(),
    }
    published_s = -_PUBLISH_EVERY_S  # of the monotonic clock, as the other may be set
    known = ""
    while not stop.is_set():
        due_s = controller.schedule.due_s() - time.time()
        publish_s = published_s + _PUBLISH_EVERY_S - time.monotonic()
        controller.take(feed.wait(min(due_s, publish_s)))
        identity, _ = feed.keeper
        if identity != known:  # a keeper that knows nothing yet
            known = identity
            controller.introduce()
        if controller.schedule.is_due(time.time()):
            controller.take(feed.wait(_COALESCE_S))
            about["error"] = _turn(controller)
            published_s = -_PUBLISH_EVERY_S
        if time.monotonic() >= published_s + _PUBLISH_EVERY_S:
            published_s = time.monotonic()
            _publish(feed, controller.status(about))
    _publish(feed, controller.status(about | {"error": "stopped"}))
    logger.info("stopped; running trainers go on")


def _turn(controller: Controller) -> str | None:
    try:
        controller.turn()
    except GatewayError as error:
        logger.error("%s", error)
        return str(error)
    return None


def _publish(feed: Feed, status: dict[str, Any]) -> None:
    _, keeper = feed.keeper
    try:
        keeper.publish(status)
    except KeeperError as error:
        logger.warning("status not published: %s", error)


def _stop_signal() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


@contextmanager
def _sole_user_of(state: Path) -> Iterator[None]:
    private_folder(state)
    with (state / "controller.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(f"another controller works in {state}") from None
        yield
