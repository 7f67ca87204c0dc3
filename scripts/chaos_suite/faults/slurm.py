"""Slurm itself: configured anew, with other nodes, without its saved state, without munge."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from scripts.chaos_suite.faults.fault import Fault, Injected
from scripts.chaos_suite.faults.nodes import kill_all_on
from scripts.chaos_suite.faults.victims import running
from scripts.chaos_suite.world import World
from scripts.labcluster.cluster import free_ports

_ANSWER_S = 30.0
_NEW_IDS = 5_000
# The elements that wait, each with the node that it is to start on.
_MEANT_FOR = ("squeue", "-h", "-r", "-t", "PD", "-p", "bftrainer", "-o", "%F_%K %n")


def _reconfigure(world: World) -> Injected:
    seconds = world.chance.choice((2, 3, 4))
    _edit(world, r"bf_interval=\d+", f"bf_interval={seconds}")
    times = world.chance.randint(1, 3)
    for _ in range(times):
        world.run("scontrol", "reconfigure", user="root")
    return Injected(f"bf_interval={seconds}, reconfigured {times} times")


def _add_node(world: World) -> Injected:
    """A node is new, and goes again: with a restart of all daemons, as 22.05 wants it."""
    number = world.lab.nodes + 1
    name, address = f"n{number}", world.lab.add_node(number)
    conf = _conf(world)
    before = conf.read_text()
    last = re.findall(r"^NodeName=.*$", before, re.MULTILINE)[-1]
    port = free_ports(1)[0]
    line = re.sub(r"NodeName=\S+", f"NodeName={name}", last)
    line = re.sub(r"NodeAddr=\S+ Port=\d+", f"NodeAddr={address} Port={port}", line)
    (world.folder / "spool" / name).mkdir(exist_ok=True)
    conf.write_text(before.replace(last, f"{last}\n{line}"))
    _restart_all(world)
    world.lab.start_slurmd(name)

    def undo() -> None:
        world.end_daemon(name)
        kill_all_on(world, name)
        world.lab.remove_node(number)
        conf.write_text(before)
        _restart_all(world)

    return Injected(f"{name} is added, used, and removed", 30.0, undo)


def _rename_node(world: World) -> Injected:
    """A node gets another name, and boots with it; later it gets its old one back.

    With care: an admin empties it first. Without, Slurm gives up what ran there, or was to.
    """
    node, care = running(world).node, world.chance.random() < 0.5
    called = f"new-{node}"
    (world.folder / "spool" / called).mkdir(exist_ok=True)

    def rename(before: str, after: str) -> None:
        if care:
            _empty(world, before)
        world.end_daemon(node)
        kill_all_on(world, before)
        _edit(world, rf"(?m)^NodeName={before} ", f"NodeName={after} ")
        _restart_all(world, {node: after})
        world.wait_for_slurmctld()

    def undo() -> None:
        rename(called, node)
        for job in world.trainers.values():
            if any(one.array == job.array and one.state == "NODE_FAIL" for one in world.elements()):
                # It trains on, with fewer elements than its user asked for.
                world.run("scancel", str(job.array))
                world.over.add(job.array)
                job.submit(world.site)

    rename(node, called)
    seconds = 30.0 + world.chance.uniform(0, 10)
    detail = f"{node} is {called} for {seconds:.0f} s, {'emptied first' if care else 'as it is'}"
    return Injected(detail, seconds, undo)


def _empty(world: World, node: str) -> None:
    """Drain a node, take elements off it, and let no held one be meant for it."""
    said = "Reason=is renamed"
    world.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", said, user="root")
    elsewhere = "n2" if node.endswith("n1") else "n1"
    deadline_s = time.monotonic() + _ANSWER_S
    while time.monotonic() < deadline_s:
        done = world.run(*_MEANT_FOR, user="root")
        meant = [line.split()[0] for line in done.stdout.splitlines() if line.split()[1:] == [node]]
        on_it = [f"{one.array}_{one.task}" for one in world.elements() if one.node == node]
        if not meant and not on_it:
            return
        if on_it:
            world.run("scontrol", "requeuehold", ",".join(on_it), user="root")
        for element in meant:
            new = f"ReqNodeList={elsewhere}"
            world.run("scontrol", "update", f"JobId={element}", new, user="root")
        world.wait(1.0)


def _lose_state(world: World) -> Injected:
    """slurmctld begins anew and knows no job; users submit their trainers again."""
    world.end_daemon("slurmctld")
    # Two jobs with one id are more than Slurm can do: an admin lets them go on from another one.
    first = re.search(r"^FirstJobId=(\d+)$", _conf(world).read_text(), re.MULTILINE)
    assert first is not None
    _edit(world, r"(?m)^FirstJobId=\d+$", f"FirstJobId={int(first[1]) + _NEW_IDS}")
    world.start_slurmctld(clean=True)
    if world.stream is not None:
        world.stream.forget()
    world.wait_for_slurmctld()
    for job in world.trainers.values():
        world.over.add(job.array)
        job.submit(world.site)
    return Injected(f"all jobs are gone, {len(world.trainers)} trainers submitted again")


def _restart_all(world: World, names: Mapping[str, str] = MappingProxyType({})) -> None:
    for name in ("slurmctld", *world.nodes):
        world.end_daemon(name, signal.SIGTERM)
    world.start_slurmctld()
    for node in world.nodes:
        world.lab.start_slurmd(node, names.get(node))


def _conf(world: World) -> Path:
    return world.folder / "slurm.conf"


def _edit(world: World, pattern: str, text: str) -> None:
    conf = _conf(world)
    conf.write_text(re.sub(pattern, text, conf.read_text()))


FAULTS = (
    Fault("reconfigured", "Slurm is reconfigured", _reconfigure),
    Fault("node-added", "a node is added, and removed again", _add_node),
    Fault(
        "node-renamed", "a node boots with another name, and gets its old one back", _rename_node
    ),
    Fault("slurm-state-lost", "slurmctld comes back without its saved state", _lose_state),
)
