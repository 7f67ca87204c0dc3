"""Nodes that vanish, hang, and come back, with an element on them."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from scripts.chaos_suite.faults.fault import Fault, Injected
from scripts.chaos_suite.faults.victims import running
from scripts.chaos_suite.observe import element_processes
from scripts.chaos_suite.patience import Patience
from scripts.chaos_suite.world import World
from scripts.labcluster.processes import send_all

_EMPTY_S = 30.0  # the nodes are looked at every 4 s
_LONGER_S = 25.0  # than SlurmdTimeout and a ping: Slurm gives the node up


def _vanish(world: World) -> Injected:
    """Nobody reaches the node any more, for so long that Slurm starts the element elsewhere."""
    return _cut_off(world, _LONGER_S + world.chance.uniform(0, 10))


def _blink(world: World) -> Injected:
    return _cut_off(world, world.chance.uniform(1, 6))


def _cut_off(world: World, seconds: float) -> Injected:
    node = running(world).node
    world.cut(node)
    return Injected(f"{node} cut off for {seconds:.0f} s", seconds, lambda: world.mend(node))


def _die(world: World) -> Injected:
    """The power goes: slurmd and all of the element are gone at once; it boots again later."""
    element = running(world)
    seconds = world.chance.choice((4.0, _LONGER_S))
    boot = world.end_daemon(element.node)
    kill_all_on(world, element.node)
    return Injected(f"{element.node} without power for {seconds:.0f} s", seconds, boot)


def _drain(world: World) -> Injected:
    """An admin waits until the node is empty."""
    name, seconds = running(world).node, world.chance.uniform(1, 10)
    node = f"NodeName={name}"
    world.run("scontrol", "update", node, "State=DRAIN", "Reason=chaos", user="root")
    patience = Patience(_EMPTY_S)
    while (stays := any(one.node == name for one in world.running())) and not patience.over:
        world.wait(1.0)
    violations = (f"{name} is drained, and an element stays there",) if stays else ()
    undo = ("scontrol", "update", node, "State=RESUME")
    return Injected(f"{name} drained", seconds, lambda: _run(world, undo), violations)


def _run(world: World, command: Sequence[str]) -> None:
    world.run(*command, user="root")


def kill_all_on(world: World, node: str) -> None:
    """Kill all elements on a node: their processes, and the slurmstepds that keep them."""
    processes = element_processes(f"{world.folder}/slurm.conf")
    mine = [one for one in processes if one.node == node]
    titles = tuple(f"slurmstepd: [{job}." for job in {one.job for one in mine})
    keepers = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if _text(path).startswith(titles)
    ]
    send_all([*keepers, *(one.pid for one in mine)], signal.SIGKILL)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


FAULTS = (
    Fault("node-vanishes", "a node is cut off until Slurm gives it up, and comes back", _vanish),
    Fault("node-blinks", "a node is cut off for a moment", _blink),
    Fault("node-dies", "a node loses its power, and boots again", _die),
    Fault("node-drained", "an admin drains a node, and resumes it", _drain),
)
