"""What users do to their elements by hand, and a second controller."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from functools import partial

from tests.chaos.faults.fault import Course, Fault, chosen
from tests.chaos.trainers import submitted
from tests.chaos.world import World

_GUEST_STARTS_S = 25.0


def _scontrol(state: str, forms: Sequence[str], world: World) -> Course:
    """Let a user run one of these scontrol commands on an element in this state."""
    element = chosen(world, lambda seen: seen.mine(state), f"{state} element")
    form, node = world.chance.choice(forms), world.chance.choice(world.nodes)
    words = form.format(element=element, array=element.array, node=node)
    done = world.run("scontrol", *words.split())
    said = f" ({done.stderr.strip()})" if done.returncode else ""
    yield f"scontrol {words}{said}"[:120], world.chance.uniform(0, 5)


def _cancel(world: World) -> Course:
    """A trainer comes, one element of it is cancelled, and then all of it."""
    guest = submitted(world.site, world.asks["saves"], f"guest-{time.monotonic():.0f}")
    world.wait(world.chance.uniform(1, _GUEST_STARTS_S))
    world.run("scancel", f"{guest.array}_{world.chance.randint(0, 1)}")
    world.wait(world.chance.uniform(0, 8))
    world.run("scancel", str(guest.array))
    yield f"trainer {guest.array}, an element, then all", 0.0


def _second_controller(world: World) -> Course:
    """Another one is started, on the same state folder or on one of its own."""
    state, detail = world.service.state, "same state folder"
    if world.chance.random() < 0.5:
        state, detail = world.folder / "second-state", "another state folder"
        state.mkdir(exist_ok=True)
        shutil.chown(state, "slurm", "slurm")
    try:
        done = world.run(*world.service.command[:-1], str(state), user="slurm")
        said = done.stderr.strip().splitlines()[-1:]
        if done.returncode == 0:
            world.violations["a second controller ends with exit code 0"] = None
    except subprocess.TimeoutExpired:
        said = []
        world.violations[f"a second controller on {detail} works as well"] = None
    yield f"{detail}: {said[0] if said else 'says nothing'}"[:160], 0.0


_ON_RUNNING = {
    "user-holds": ["hold {element}"],
    "user-releases": ["release {array}"],  # those that are held, too
    "user-requeues": ["requeue {element}", "requeuehold {element}"],
    "user-limits": ["update JobId={element} TimeLimit=1"],
}
_MOVE = "update JobId={element} ReqNodeList={node} StartTime=now+30"

FAULTS: dict[str, Fault] = {
    **{name: partial(_scontrol, "RUNNING", forms) for name, forms in _ON_RUNNING.items()},
    "user-moves": partial(_scontrol, "PENDING", [_MOVE]),
    "user-cancels": _cancel,
    "second-controller": _second_controller,
}
