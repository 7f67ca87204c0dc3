"""Nodes that vanish, lose their power, are drained, and come back, with an element on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.chaos.faults.fault import Course, Fault, running
from tests.chaos.patience import Patience
from tests.chaos.world import World

_EMPTY_S = 30.0  # the nodes are looked at every 4 s
_LONGER_S = 25.0  # than SlurmdTimeout and a ping: Slurm gives the node up


def _cut_off(least_s: float, most_s: float, world: World) -> Course:
    """Cut a node off from all others for some time.

    Afterwards what runs there goes on alone until Slurm has told the node.
    """
    node, seconds = running(world).node, world.chance.uniform(least_s, most_s)
    world.apart.add(node)
    world.struck.add(node)
    world.lab.disturb(node, "cut")
    yield f"{node} cut off for {seconds:.0f} s", seconds
    world.lab.disturb(node, "mend")


def _die(world: World) -> Course:
    """The power goes: slurmd and all of the element are gone at once; it boots again later."""
    node, seconds = running(world).node, world.chance.choice((4.0, _LONGER_S))
    world.struck.add(node)
    world.lab.kill_host(node)
    yield f"{node} without power for {seconds:.0f} s", seconds
    world.lab.add_host(node)
    world.lab.start_slurmd(node)


def _drain(world: World) -> Course:
    """An admin waits until the node is empty."""
    node = running(world).node
    update = ("scontrol", "update", f"NodeName={node}")
    world.run(*update, "State=DRAIN", "Reason=chaos", user="root")
    if not emptied(world, lambda: any(one.node == node for one in world.look().mine())):
        world.violations[f"{node} is drained, and an element stays there"] = None
    yield f"{node} drained", world.chance.uniform(1, 10)
    world.run(*update, "State=RESUME", user="root")


def emptied(world: World, stays: Callable[[], object]) -> bool:
    """Wait until ``stays`` is false; return whether that came in time."""
    patience = Patience(_EMPTY_S)
    while stays():
        if patience.over:
            return False
        world.wait(1.0)
    return True


FAULTS: dict[str, Fault] = {
    # Slurm starts the element elsewhere.
    "node-vanishes": partial(_cut_off, _LONGER_S, _LONGER_S + 10),
    "node-blinks": partial(_cut_off, 1, 6),
    "node-dies": _die,
    "node-drained": _drain,
}
