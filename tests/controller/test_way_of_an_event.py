"""How far one event goes: a node becomes idle, a trainer grows onto it, and it is reclaimed.

Who has read the modules that it enters knows what happens to it; `pytest -s` prints them.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from bftrainer_slurm.keeper.protocol import NoteKind
from tests.controller.setting import at_work

CONTROLLER = "bftrainer_slurm.controller."
MOST = 23  # as many as are, and the daemon's; 50 in all were entered before, the goal is 15


def test_an_event_enters_few_modules() -> None:
    setting, way = at_work(1), list[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        module = name.removeprefix(CONTROLLER)
        if event == "call" and name != module and way[-1:] != [module]:
            way.append(module)

    sys.setprofile(note)
    try:
        setting.has_also("n2")
        setting.say(NoteKind.UP, "n2")
        setting.slurm.start_ordinary_("n2")
        setting.settle()
        setting.controller.status({})
    finally:
        sys.setprofile(None)
    assert (setting.on().keys(), setting.shown()["reclaimed"]) == ({"n1"}, 1)
    entered = list(dict.fromkeys(way))  # in the order of the way
    print(f"\n{len(entered)} modules, each with how often the way comes to it:")
    print("\n".join(f"{way.count(one):6} {one}" for one in entered))
    assert {"loop", "act"} <= set(entered)
    assert len(entered) <= MOST, entered
