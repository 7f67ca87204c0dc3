"""Which element a fault hits: chosen by the world's chance, waited for where there is none now."""

from __future__ import annotations

from collections.abc import Callable

from scripts.chaos_suite.faults.fault import CannotInjectError
from scripts.chaos_suite.observe import Element
from scripts.chaos_suite.world import World

_TRIES = 20  # a second each: all may just have been reclaimed


def running(world: World) -> Element:
    """Return an element that runs."""
    return _one_of(world, world.running, "no element runs")


def waiting(world: World) -> Element:
    """Return an element that waits."""
    return _one_of(world, world.waiting, "no element waits")


def training(world: World) -> Element:
    """Return an element that makes steps."""
    return _one_of(
        world, lambda: [one for one in world.running() if workers(world, one)], "no element trains"
    )


def workers(world: World, element: Element) -> list[int]:
    """Return the processes of an element that make steps, as their logs say."""
    (job,) = [job for job in world.trainers.values() if job.array == element.array]
    job.training.read()
    newest = job.training.newest
    if newest is None:
        return []
    return [one.pid for one in world.processes_of(element) if one.name in newest.places]


def _one_of(world: World, find: Callable[[], list[Element]], otherwise: str) -> Element:
    for _ in range(_TRIES):
        found = find()
        if found:
            return world.chance.choice(found)
        world.wait(1.0)
    raise CannotInjectError(otherwise)
