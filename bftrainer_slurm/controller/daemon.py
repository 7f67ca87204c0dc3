"""The controller as a process: its state folder, its keeper, its signals, and its main loop."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bftrainer_slurm.controller.act import Groups
from bftrainer_slurm.controller.loop import Controller, Dependencies
from bftrainer_slurm.controller.observe.feed import Feed
from bftrainer_slurm.controller.publish.keys import key_in
from bftrainer_slurm.controller.settings import Settings, SettingsError
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.turns import Turns, notify
from bftrainer_slurm.keeper.credentials import CredentialError, Means, read_secret
from bftrainer_slurm.keeper.home import find_or_start
from bftrainer_slurm.model import Trainer
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.slurm.gateway import Gateway
from bftrainer_slurm.slurm.wrappers import metered
from bftrainer_slurm.while_in_charge import place_to_work, wait_for_slurmctld

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose trainers this controller runs; ``user`` None: those of all users (site mode)."""

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


def run(state: Path, scope: Scope, settings: Settings, gateway: Gateway) -> None:
    """Run until SIGTERM or SIGINT; trainers continue without the controller.

    Raises:
        RestartError: the controller has to start again.
        StateError: the state folder is in use, or others can write to it.
        KeeperError: the keeper could not be started.
        HistoryError: the history file cannot be used.
        SettingsError: the site's key cannot be used.
        KeyboardInterrupt: SIGINT has ended the controller.
    """
    if scope.user is not None and settings.metrics:
        text = "metrics=%s: only the reader serves them: run 'bftrainer reader --listen %s'"
        logger.warning(text, settings.metrics, settings.metrics)
    with ExitStack() as stack:
        alone = settings.folder is None
        work = place_to_work("controller", state, settings.folder, beat=_waits)
        state = stack.enter_context(work)
        if not alone:
            wait_for_slurmctld(beat=_waits)
        planner = stack.enter_context(Planner())
        means = _means(scope, settings)
        find_keeper = partial(find_or_start, state, settings.listen, means=means, start=alone)
        feed = Feed(find_keeper(), find_keeper)
        history = History(state / "history.sqlite", remote=not alone)
        stack.callback(history.close)
        gateway.remember(history.records())
        deps = _dependencies(scope, settings, gateway, planner, history, feed)
        text = "controller in %s mode, gateway %s, keeper at %s, state in %s"
        logger.info(text, scope.mode, gateway.name, feed.keeper[1].address, state)
        feed.start()
        stack.callback(feed.stop)
        secret = "" if scope.user or not settings.page else key_in(state)
        about, stop = _about(scope, settings, gateway.name), _Stop()
        Turns(Controller(deps, settings), feed, about, secret).run(stop)
    if stop.interrupted:
        raise KeyboardInterrupt


def _dependencies(
    scope: Scope,
    settings: Settings,
    gateway: Gateway,
    planner: Planner,
    history: History,
    feed: Feed,
) -> Dependencies:
    """Return what the loop works with; every request is counted."""
    return Dependencies(
        gateway=metered(gateway, history.counts.note_request),
        planner=planner,
        history=history,
        groups=Groups(lambda: feed.keeper),
        clock=time.time,
        mine=lambda trainer: scope.mine(trainer, settings.partition),
        notes_arrive=lambda: feed.notes_arrive,
    )


def _about(scope: Scope, settings: Settings, gateway: str) -> dict[str, Any]:
    """Return what the status says about this process."""
    return {
        "mode": scope.mode,
        "user": scope.user,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "gateway": gateway,
        "partition": settings.partition,
        "since_s": time.time(),
        "objective": settings.objective,
        "metrics": None if scope.user else settings.page,
    }


def _waits() -> None:
    """Tell systemd that the controller is alive while it waits for its turn."""
    notify("READY=1\nWATCHDOG=1")


def _means(scope: Scope, settings: Settings) -> Means:
    """Return what the keeper's proofs are made of.

    Raises:
        SettingsError: the site's key cannot be used.
    """
    if scope.user is not None:
        return Means()
    try:
        read_secret(Path(settings.key_file))
    except CredentialError as error:
        why = f"key_file: {error}; 'bftrainer doctor' says how to make the site's key"
        raise SettingsError(why) from error
    return settings.means


class _Stop(threading.Event):
    """Set by SIGTERM and SIGINT; ``interrupted`` is true if it was SIGINT."""

    interrupted = False

    def __init__(self) -> None:
        super().__init__()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._heed)

    def _heed(self, number: int, _: object) -> None:
        self.interrupted = number == signal.SIGINT
        self.set()
