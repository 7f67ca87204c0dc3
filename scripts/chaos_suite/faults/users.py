"""What users do to their elements by hand, and a second controller."""

from __future__ import annotations

import shutil
import subprocess

from scripts.chaos_suite.faults.fault import Fault, Injected
from scripts.chaos_suite.faults.victims import running, waiting
from scripts.chaos_suite.observe import Element
from scripts.chaos_suite.trainers import submitted
from scripts.chaos_suite.world import World

_GUEST_STARTS_S = 25.0


def _hold(world: World) -> Injected:
    element = running(world)
    return _scontrol(world, "hold", _name(element))


def _release(world: World) -> Injected:
    """All elements that the controller holds may start, wherever Slurm likes."""
    return _scontrol(world, "release", str(running(world).array))


def _requeue(world: World) -> Injected:
    verb = world.chance.choice(("requeue", "requeuehold"))
    return _scontrol(world, verb, _name(running(world)))


def _limit(world: World) -> Injected:
    return _scontrol(world, "update", f"JobId={_name(running(world))}", "TimeLimit=1")


def _move(world: World) -> Injected:
    """Ask for a node by hand, for an element that waits."""
    element = waiting(world)
    node = world.chance.choice(world.nodes)
    words = ("update", f"JobId={_name(element)}", f"ReqNodeList={node}", "StartTime=now+30")
    return _scontrol(world, *words)


def _cancel(world: World) -> Injected:
    """A trainer comes, one element of it is cancelled, and then all of it."""
    job = submitted(world.site, "inprocess", f"guest-{len(world.over)}")
    world.guests.add(job.array)
    world.wait(world.chance.uniform(1, _GUEST_STARTS_S))
    world.run("scancel", f"{job.array}_{world.chance.randint(0, 1)}")
    world.wait(world.chance.uniform(0, 8))
    world.run("scancel", str(job.array))
    world.guests.remove(job.array)
    world.over.add(job.array)
    return Injected(f"trainer {job.array}, an element, then all")


def _second_controller(world: World) -> Injected:
    """Start another one, on the same state folder or on one of its own."""
    same = world.chance.random() < 0.5
    state = world.service.state if same else world.folder / "second-state"
    if not same:
        state.mkdir(exist_ok=True)
        shutil.chown(state, "slurm", "slurm")
    command = (*world.service.command[:-1], str(state))
    detail = "same state folder" if same else "another state folder"
    try:
        done = world.run(*command, user="slurm", timeout_s=30.0)
    except subprocess.TimeoutExpired:
        return Injected(detail, violations=(f"a second controller on {detail} works as well",))
    if done.returncode == 0:
        return Injected(detail, violations=("a second controller ends with exit code 0",))
    said = done.stderr.strip().splitlines()[-1:]
    return Injected(f"{detail}: {said[0] if said else 'says nothing'}"[:160])


def _scontrol(world: World, *words: str) -> Injected:
    done = world.run("scontrol", *words)
    said = f" ({done.stderr.strip()})" if done.returncode else ""
    return Injected(f"scontrol {' '.join(words)}{said}"[:120], world.chance.uniform(0, 5))


def _name(element: Element) -> str:
    return f"{element.array}_{element.task}"


FAULTS = (
    Fault("user-holds", "a user holds a running element", _hold),
    Fault("user-releases", "a user releases all elements", _release),
    Fault("user-requeues", "a user requeues an element", _requeue),
    Fault("user-limits", "a user sets an element's time limit to a minute", _limit),
    Fault("user-moves", "a user asks for another node for an element", _move),
    Fault("user-cancels", "a user cancels an element, then the whole trainer", _cancel),
    Fault("second-controller", "another controller is started", _second_controller),
)
