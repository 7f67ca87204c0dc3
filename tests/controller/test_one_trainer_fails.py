"""Whatever is wrong with one trainer, the others are planned and started, and the log names it.

Each function that is handed this trainer raises, one after the other: no data is known that makes
them do so.
"""

from __future__ import annotations

import functools
import inspect
import logging
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FunctionType
from typing import Any

import pytest

from bftrainer_slurm import controller
from bftrainer_slurm.controller.decide.actions import Action
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import ElementId, Trainer
from tests.controller.setting import Setting
from tests.controller.worlds import note

SICK, WELL, NEW = 11, 12, 13
PARTS = ("observe", "state", "decide", "act", "publish")
# They only keep, or hand on, what has been read: nothing in it can make them raise.
KEEPERS = {
    *("Action.array", "TrainerErrors.of", "TrainerView.array", "TrainerView.nodes", "_judged"),
    *("TrainerState.nodes", "Record.put", "TrainerView.over"),
}


def functions() -> Iterator[tuple[object, str, Any]]:
    """Where each function, method and property of the controller's turn is, with its name."""
    for module in (import_module(one.name) for one in pkgutil.walk_packages(controller.__path__,
                   f"{controller.__name__}.") if one.name.split(".")[2] in PARTS):  # fmt: skip
        for name, found in list(vars(module).items()):
            if getattr(found, "__module__", "") != module.__name__:
                continue
            if isinstance(found, FunctionType):
                yield module, name, found
            for inner, one in list(vars(found).items()) if inspect.isclass(found) else ():
                if isinstance(one, FunctionType | property) and not inner.startswith("__"):
                    yield found, inner, one


def plain(function: Any) -> Any:
    """The function itself, where it is a property."""
    return function.fget if isinstance(function, property) else function


def is_sick(given: object) -> bool:
    """Whether an argument is this trainer, or one of its elements."""
    match given:
        case TrainerView() | Trainer() | ElementId():
            return given.array == SICK
        case Action():
            return given.elements[0].array == SICK
        case TrainerState():
            return given.id == "sick"
    return type(given) is int and given == SICK


@contextmanager
def failing(place: object, name: str, function: Any) -> Iterator[list[str]]:
    """A function raises where it is handed this trainer; yields its name for each time it did."""
    inner, raised = plain(function), list[str]()

    @functools.wraps(inner)
    def fails(*arguments: Any, **named: Any) -> Any:
        if any(map(is_sick, (*arguments, *named.values()))):
            raised.append(inner.__qualname__)
            raise ZeroDivisionError
        return inner(*arguments, **named)

    new = property(fails) if isinstance(function, property) else fails
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, new)
        for module in [one for name, one in sys.modules.items() if name.startswith("bftrainer_s")]:
            for at in [at for at, one in vars(module).items() if one is function]:
                patch.setattr(module, at, new)
        yield raised


def a_turn(setting: Setting) -> None:
    """A new trainer comes, and the sick one loses a node and says something."""
    setting.submit(NEW, 2)
    setting.slurm.start_ordinary_(next(iter(setting.on(SICK))))
    setting.controller.take([note(NoteKind.UP, setting.now_s, array=SICK)])
    for _ in range(3):
        setting.turn()
    setting.controller.status({})


def begun() -> Setting:
    """Where the sick trainer and a well one run."""
    setting = Setting(8)
    setting.slurm.submit_(SICK, 1, 3, "sick")
    setting.slurm.submit_(WELL, 1, 2, "well")
    setting.turn()
    return setting


def entered() -> set[object]:
    """The code that a turn enters."""
    setting, found = begun(), set[object]()
    sys.setprofile(lambda frame, event, _: found.add(frame.f_code) if event == "call" else None)
    try:
        a_turn(setting)
    finally:
        sys.setprofile(None)
    return found


def test_what_raises_for_one_trainer_hinders_no_other(caplog: pytest.LogCaptureFixture) -> None:
    all_raised, there = set[str](), entered()
    for place, name, function in functions():
        if plain(function).__qualname__ in KEEPERS or plain(function).__code__ not in there:
            continue
        setting = begun()
        caplog.clear()
        with failing(place, name, function) as raised:
            a_turn(setting)
        if raised:
            all_raised.update(raised)
            assert (raised[0], len(setting.on(NEW))) == (raised[0], 2)
            errors = {one.message for one in caplog.records if one.levelno >= logging.ERROR}
            assert errors == {f"the controller ignores trainer {SICK} for now"}, raised[0]
    assert len(all_raised) > 50
