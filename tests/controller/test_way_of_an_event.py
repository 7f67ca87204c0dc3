"""How far one event goes: a node becomes idle, a trainer grows onto it, and it is reclaimed.

It is followed through the real daemon by a tracer. Who has read the modules that it enters knows
what happens to it; `pytest -s` prints the way.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.turns import Turns
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import Queue
from scripts.labcluster.waiting import wait_until
from tests.controller.fake_keeper import FakeFeed
from tests.controller.made_up_slurm import MadeUpSlurm
from tests.controller.setting import Planner
from tests.controller.worlds import ARRAY, note, started

CONTROLLER = "bftrainer_slurm.controller."
MOST = 24  # as many are; 50 were entered before, and the goal is 15


@dataclass
class Ticking(MadeUpSlurm):
    """It acts whenever it is asked, by the clock of this machine; then it does what is ``due``."""

    due: list[Callable[[], None]] = field(default_factory=list)

    def queue(self) -> Queue:
        self.now_s = time.time()
        while self.due:
            self.due.pop()()
        self.schedule()
        return super().queue()


class Tracer:
    """Notes the modules of the controller that are entered, in their order, while it is ``on``."""

    def __init__(self) -> None:
        self.on = False
        self.way: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if self.on and event == "call" and name.startswith(CONTROLLER):
            module = name.removeprefix(CONTROLLER)
            if self.way[-1:] != [module]:
                self.way.append(module)


@contextmanager
def daemon(slurm: MadeUpSlurm, feed: FakeFeed, tracer: Tracer) -> Iterator[None]:
    """The daemon at work in a thread of its own."""
    settings = Settings(queue_interval_s=0.1)
    stop = threading.Event()

    def go_on() -> None:
        sys.setprofile(tracer)
        history = History(":memory:")  # only this thread can use it
        about = (slurm, Planner(), history, time.time, settings)
        controller = started(*about, notes_arrive=lambda: True)
        Turns(controller, feed, {}).run(stop)  # type: ignore[arg-type]

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(120)


def test_an_event_enters_few_modules() -> None:
    slurm, feed, tracer = Ticking(time.time(), ["n1", "n2"]), FakeFeed(), Tracer()
    slurm.submit_(ARRAY, 1, 2, "0000000a")
    slurm.start_ordinary_("n2")
    with daemon(slurm, feed, tracer):
        wait_until(lambda: slurm.on_(ARRAY).keys() == {"n1"})
        wait_until(lambda: len(feed.of.published) > 5)
        tracer.on = True
        slurm.ordinary.clear()
        wait_until(lambda: "n2" in slurm.on_(ARRAY))
        feed.comes = [note(NoteKind.UP, time.time(), slurm.on_(ARRAY)["n2"], "n2")]
        wait_until(lambda: not feed.comes)
        slurm.due.append(lambda: slurm.start_ordinary_("n2"))
        seen = len(feed.of.published)
        wait_until(lambda: len(feed.of.published) > seen + 3)
        tracer.on = False
    entered = list(dict.fromkeys(tracer.way))  # in the order of the way
    print(f"\n{len(entered)} modules, each with how often the way comes to it:")
    print("\n".join(f"{tracer.way.count(one):6} {one}" for one in entered))
    assert {"loop", "act"} <= set(entered)
    assert len(entered) <= MOST, entered
