"""Slurm itself: configured anew, with other nodes, without its saved state, without munge."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

from scripts.chaos_suite.faults.fault import Fault, Injected
from scripts.chaos_suite.faults.processes import send
from scripts.chaos_suite.observe import element_processes
from scripts.chaos_suite.world import World
from scripts.labcluster.cluster import free_ports

_ANSWER_S = 30.0
_NEW_IDS = 5_000


def _reconfigure(world: World) -> Injected:
    seconds = world.chance.choice((2, 3, 4))
    _edit(world, r"bf_interval=\d+", f"bf_interval={seconds}")
    times = world.chance.randint(1, 3)
    for _ in range(times):
        world.run("scontrol", "reconfigure", user="root")
    return Injected(f"bf_interval={seconds}, reconfigured {times} times")


def _add_node(world: World) -> Injected:
    """A node is new, and goes again: with a restart of all daemons, as 22.05 wants it."""
    name = f"n{world.lab.nodes + 1}"
    conf = _conf(world)
    before = conf.read_text()
    last = re.findall(r"^NodeName=.*$", before, re.MULTILINE)[-1]
    port = free_ports(1)[0]
    line = re.sub(r"NodeName=\S+", f"NodeName={name}", last)
    line = re.sub(r"Port=\d+", f"Port={port}", line)
    (world.folder / "spool" / name).mkdir(exist_ok=True)
    conf.write_text(before.replace(last, f"{last}\n{line}"))
    _restart_all(world)
    world.lab.start_slurmd(name)

    def undo() -> None:
        world.signal_daemon(name, signal.SIGKILL)
        del world.lab.daemons[name]
        processes = element_processes(f"{world.folder}/slurm.conf")
        send([one.pid for one in processes if one.node == name], signal.SIGKILL)
        conf.write_text(before)
        _restart_all(world)

    return Injected(f"{name} is added, used, and removed", 30.0, undo)


def _lose_state(world: World) -> Injected:
    """slurmctld begins anew and knows no job; users submit their trainers again."""
    world.signal_daemon("slurmctld", signal.SIGKILL)
    # Two jobs with one id are more than Slurm can do: an admin lets them go on from another one.
    first = re.search(r"^FirstJobId=(\d+)$", _conf(world).read_text(), re.MULTILINE)
    assert first is not None
    _edit(world, r"(?m)^FirstJobId=\d+$", f"FirstJobId={int(first[1]) + _NEW_IDS}")
    world.start_slurmctld(clean=True)
    if world.stream is not None:
        world.stream.forget()
    deadline_s = time.monotonic() + _ANSWER_S
    while time.monotonic() < deadline_s and world.run("scontrol", "ping").returncode != 0:
        world.wait(0.5)
    for job in world.trainers.values():
        world.over.add(job.array)
        world.submit(job)
    return Injected(f"all jobs are gone, {len(world.trainers)} trainers submitted again")


def _kill_munge(world: World) -> Injected:
    command = Path(f"/proc/{world.lab.daemons['munged'].pid}/cmdline").read_text().split("\0")
    world.signal_daemon("munged", signal.SIGKILL)
    (world.folder / "munge" / "socket").unlink(missing_ok=True)
    seconds = world.chance.uniform(1, 12)
    undo = lambda: world.lab.start_daemon("munged", *command[:-1])  # noqa: E731
    return Injected(f"SIGKILL, away for {seconds:.0f} s", seconds, undo)


def _restart_all(world: World) -> None:
    nodes = [f"n{number}" for number in range(1, world.lab.nodes + 1)]
    for name in ("slurmctld", *nodes):
        world.signal_daemon(name, signal.SIGTERM)
    world.start_slurmctld()
    for node in nodes:
        world.lab.start_slurmd(node)


def _conf(world: World) -> Path:
    return world.folder / "slurm.conf"


def _edit(world: World, pattern: str, text: str) -> None:
    conf = _conf(world)
    conf.write_text(re.sub(pattern, text, conf.read_text()))


FAULTS = (
    Fault("reconfigured", "Slurm is reconfigured", _reconfigure),
    Fault("node-added", "a node is added, and removed again", _add_node),
    Fault("slurm-state-lost", "slurmctld comes back without its saved state", _lose_state),
    Fault("munge-killed", "munged is killed and comes back", _kill_munge),
)
