"""The controller, the keeper, slurmctld, slurmd and munged: killed, stopped, slow."""

from __future__ import annotations

import signal

from scripts.chaos_suite.faults.fault import Fault, Injected, frozen
from scripts.chaos_suite.world import World


def _kill_controller(world: World) -> Injected:
    world.service.kill(hold=True)
    return Injected("SIGKILL", world.chance.uniform(0, 20), world.service.start)


def _kill_controller_soon(world: World) -> Injected:
    """Kill it in the middle of what it does after a start."""
    kills = world.chance.randint(2, 4)
    for _ in range(kills):
        world.service.kill()
        world.service.start()
        world.wait(world.chance.uniform(0.3, 4))
    return Injected(f"SIGKILL {kills} times in a row")


def _kill_keeper(world: World) -> Injected:
    world.service.keeper.kill()
    return Injected("SIGKILL")


def _kill_both(world: World) -> Injected:
    world.service.kill(hold=True)
    world.service.keeper.kill()
    return Injected("SIGKILL of both", world.chance.uniform(0, 15), world.service.start)


def _kill_slurmctld(world: World) -> Injected:
    world.signal_daemon("slurmctld", signal.SIGKILL)
    return Injected("SIGKILL", world.chance.uniform(1, 15), world.start_slurmctld)


def _refuse(world: World) -> Injected:
    world.signal_daemon("slurmctld", signal.SIGTERM)
    return Injected("stopped", world.chance.uniform(5, 20), world.start_slurmctld)


def _freeze_slurmctld(world: World) -> Injected:
    return frozen([world.lab.daemons["slurmctld"].pid], world.chance.uniform(3, 20))


def _kill_slurmd(world: World) -> Injected:
    node = world.chance.choice(world.nodes)
    world.signal_daemon(node, signal.SIGKILL)
    undo = lambda: world.lab.start_slurmd(node)  # noqa: E731
    return Injected(f"SIGKILL on {node}", world.chance.uniform(1, 8), undo)


def _freeze_keeper(world: World) -> Injected:
    pid = world.service.keeper.pid
    return frozen([] if pid is None else [pid], world.chance.uniform(3, 15))


FAULTS = (
    Fault("controller-killed", "the controller is killed", _kill_controller),
    Fault("controller-flaps", "the controller is killed while it starts", _kill_controller_soon),
    Fault("keeper-killed", "the keeper is killed", _kill_keeper),
    Fault("keeper-frozen", "the keeper hangs", _freeze_keeper),
    Fault("both-killed", "controller and keeper are killed", _kill_both),
    Fault("slurmctld-killed", "slurmctld is killed and comes back", _kill_slurmctld),
    Fault("slurmctld-refuses", "slurmctld is away for some time", _refuse),
    Fault("slurmctld-slow", "slurmctld does not answer in time", _freeze_slurmctld),
    Fault("slurmd-killed", "a node's slurmd is killed and comes back", _kill_slurmd),
)
