"""A fault of its own: the first of two control hosts is killed, and the second takes over.

Slurm's answers and the trainers' logs say what became of the trainers. Our controller is only asked
on which host it works.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from scripts.labcluster.cluster import CONTROL_HOSTS
from scripts.labcluster.waiting import wait_until
from tests.chaos.faults.fault import Course, Fault
from tests.chaos.hosts import TwoHosts
from tests.chaos.observe import Snapshot
from tests.chaos.patience import Patience
from tests.chaos.world import World

FIRST, SECOND = CONTROL_HOSTS
NODES = 6
EACH = 2  # trainers of a kind
LIMIT_S = 60.0  # of an idle machine, from the start of the second slurmctld until all train
_PATIENCE_S = 300.0
_STANDS_BY_S = 60.0
_SAVED_S = 12.0  # slurmctld writes down every few seconds what it has done
_LOOK_S = 0.05  # between two looks at what is timed
_TRAINS_S = 2.0  # a trainer that made a step within this time trains
_PRIMARY = "Running as primary controller"


def host_dies(hosts: TwoHosts) -> Fault:
    """Kill the first host while trainers wait for nodes, and free nodes when it is dead."""

    def fault(world: World) -> Course:
        blocker = _block(world)
        _settle(world)
        before = _places(_answered(world))
        world.tell(f"killing {FIRST}: {', '.join(before)}")
        _take_over(world, hosts, blocker)
        after = _places(_answered(world))
        for place, start in before.items():
            if after.get(place) != start:
                world.violations[f"{place} ran since {start}, and now {after.get(place)}"] = None
        yield ", ".join(f"{name} {value:.1f}" for name, value in world.figures.items()), 0.0
        _give_back(world, hosts)

    return fault


def _take_over(world: World, hosts: TwoHosts, blocker: str) -> None:
    """Kill the first host, free the nodes, and note how long each thing took."""
    starts, since_s = _starts(hosts, SECOND), time.monotonic()
    hosts.cluster.kill_host(FIRST)

    def noted(name: str, condition: Callable[[], bool]) -> None:
        def look() -> bool:
            if "leads_s" not in world.figures:  # until then it must not matter that all are gone
                pause_s = max(world.figures.get("pause_s", 0.0), _pause_s(world))
                world.figures["pause_s"] = pause_s
            return condition()

        often = lambda _: world.wait(_LOOK_S)  # noqa: E731
        wait_until(look, _PATIENCE_S, f"{name} has not come", often)
        world.figures[name] = time.monotonic() - since_s

    noted("second_s", lambda: _starts(hosts, SECOND) > starts)
    since_s, patience = time.monotonic(), Patience(LIMIT_S)
    # A slurmctld that has just started may not answer yet.
    scancel = ("scancel", blocker)
    cancelled = lambda: world.run(*scancel, timeout_s=_PATIENCE_S).returncode == 0  # noqa: E731
    wait_until(cancelled, pause=world.wait)
    noted("leads_s", lambda: hosts.leader() == SECOND or patience.over)
    noted("grown_s", lambda: len(world.look().mine()) == len(world.nodes) or patience.over)
    noted("trains_s", lambda: _trains_on(world, len(world.nodes)) or patience.over)
    if patience.over:
        world.violations[f"not all train again after {world.figures['trains_s']:.0f} s"] = None


def _give_back(world: World, hosts: TwoHosts) -> None:
    """Switch the first host on again; our services follow slurmctld there by themselves."""
    starts = _starts(hosts, FIRST)
    hosts.revive(FIRST)
    wait_until(lambda: _starts(hosts, FIRST) > starts, _PATIENCE_S, pause=world.wait)
    wait_until(lambda: hosts.leader() == FIRST, _PATIENCE_S, pause=world.wait)
    _stand_by(world, hosts)


def _stand_by(world: World, hosts: TwoHosts) -> None:
    """See to it that the second slurmctld stands by again, as an admin does.

    Slurm 22.05.8 sometimes hangs as it gives back: main() joins the thread that purges old jobs,
    which waits for a signal that was sent before.
    """
    answers = lambda: hosts.slurmctld_answers(SECOND)  # noqa: E731
    try:
        wait_until(answers, _STANDS_BY_S, pause=world.wait)
    except TimeoutError:
        world.tell(f"slurmctld of {SECOND} hangs, as Slurm's own sometimes does: ending it")
        hosts.restart_slurmctld(SECOND)
        wait_until(answers, _PATIENCE_S, "it does not stand by", pause=world.wait)


def _block(world: World) -> str:
    """Let an ordinary job have all nodes but one of each trainer; return its id.

    With other nodes a trainer might be left with none: a plan does not stop one trainer for another
    that gains no more.
    """
    kept = {one.array: one.node for one in _answered(world).mine()}.values()
    nodes = [node for node in world.nodes if node not in kept]
    words = ("-w", ",".join(nodes), f"-N{len(nodes)}", "--exclusive", "-t", "60", "-J", "ordinary")
    script = "#!/bin/sh\nsleep 3600\n"
    return str(world.site.lab.sbatch(*words, "-o", "/dev/null", script=script))


def _settle(world: World) -> None:
    """Wait until each trainer trains on one node, and Slurm has written that down."""
    arrays = sorted(one.array for one in world.trainers)

    def settled() -> bool:
        there = sorted(one.array for one in world.look().mine())
        return there == arrays and _trains_on(world, len(arrays))

    for _ in range(2):
        wait_until(settled, _PATIENCE_S, "the trainers do not settle", world.wait)
        world.wait(_SAVED_S)


def _answered(world: World) -> Snapshot:
    """Look until Slurm answers; return what was seen."""
    patience = Patience(_PATIENCE_S)
    while (seen := world.look()).elements is None and not patience.over:
        world.wait(1.0)
    return seen


def _places(seen: Snapshot) -> dict[str, str]:
    """Return since when each element runs."""
    return {f"{one} on {one.node}": one.start for one in seen.mine()}


def _trains_on(world: World, nodes: int) -> bool:
    """Return whether this many nodes train, over all trainers, and no trainer stands still."""
    last = [one.training.newest for one in world.look().trainers]
    worlds = sum(one.world for one in last if one is not None)
    return worlds == nodes and _pause_s(world) < _TRAINS_S


def _pause_s(world: World) -> float:
    """Return how long ago the slowest of the trainers made its last step."""
    for one in world.trainers:
        one.training.read()
    last = [one.training.newest for one in world.trainers]
    return time.monotonic() - min(0.0 if one is None else one.last_s for one in last)


def _starts(hosts: TwoHosts, host: str) -> int:
    """Return how often the slurmctld of a host has begun to work."""
    log = hosts.cluster.folder / "log" / f"slurmctld-{host}.log"
    return log.read_text(errors="replace").count(_PRIMARY) if log.exists() else 0
