"""Slurm itself: configured anew, with other nodes, without its saved state."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from types import MappingProxyType

from scripts.labcluster.cluster import free_ports
from tests.chaos.faults.fault import Course, Fault, running
from tests.chaos.faults.nodes import emptied
from tests.chaos.world import World

_NEW_IDS = 5_000
# Lists the elements that wait, each with the node that it is to start on.
_MEANT_FOR = ("squeue", "-h", "-r", "-t", "PD", "-p", "bftrainer", "-o", "%F_%K %n")


def _reconfigure(world: World) -> Course:
    seconds, times = world.chance.choice((2, 3, 4)), world.chance.randint(1, 3)
    _edit(world, r"bf_interval=\d+", f"bf_interval={seconds}")
    for _ in range(times):
        world.run("scontrol", "reconfigure", user="root")
    yield f"bf_interval={seconds}, reconfigured {times} times", 0.0


def _add_node(world: World) -> Course:
    """Add a node, and remove it: each time all daemons are restarted, as 22.05 needs it."""
    number = world.lab.nodes + 1
    name = f"n{number}"
    address = world.lab.add_host(name)
    conf = world.folder / "slurm.conf"
    before = conf.read_text()
    last = re.findall(r"^NodeName=.*$", before, re.MULTILINE)[-1]
    line = re.sub(r"NodeName=\S+", f"NodeName={name}", last)
    line = re.sub(r"NodeAddr=\S+ Port=\d+", f"NodeAddr={address} Port={free_ports(1)[0]}", line)
    (world.folder / "spool" / name).mkdir(exist_ok=True)
    conf.write_text(before.replace(last, f"{last}\n{line}"))
    _restart_all(world)
    world.lab.start_slurmd(name)
    yield f"{name} is added, used, and removed", 30.0
    world.struck.add(name)  # nobody has emptied it: Slurm requeues what runs there
    world.lab.kill_host(name)
    conf.write_text(before)
    _restart_all(world)


def _rename_node(world: World) -> Course:
    """A node gets another name, and boots with it; later it gets its old one back.

    A careful admin empties it first. Otherwise Slurm gives up what ran there or was to run there.
    """
    node, care = running(world).node, world.chance.random() < 0.5
    called, seconds = f"new-{node}", 30.0 + world.chance.uniform(0, 10)
    (world.folder / "spool" / called).mkdir(exist_ok=True)

    def rename(before: str, after: str) -> None:
        if care:
            update = ("scontrol", "update", f"NodeName={before}", "State=DRAIN")
            world.run(*update, "Reason=is renamed", user="root")
            emptied(world, lambda: _leave(world, before))
        world.struck |= {before, after}
        world.lab.kill_host(node)
        _edit(world, rf"(?m)^NodeName={before} ", f"NodeName={after} ")
        world.lab.add_host(node)
        _restart_all(world, {node: after})
        world.wait_for_slurmctld()

    rename(node, called)
    how = "emptied first" if care else "as it is"
    yield f"{node} is {called} for {seconds:.0f} s, {how}", seconds
    rename(called, node)
    failed = {one.array for one in world.look().mine("NODE_FAIL")}
    for trainer in world.trainers:
        if trainer.array in failed:  # it trains on, with fewer elements than its user asked for
            world.run("scancel", str(trainer.array))
            trainer.submit(world.site)


def _leave(world: World, node: str) -> bool:
    """Take all elements off a node, the held ones too that it is meant for; return if any was."""
    listed = world.run(*_MEANT_FOR, user="root").stdout.splitlines()
    meant = [line.split()[0] for line in listed if line.split()[1:] == [node]]
    there = [one for one in world.look().elements or () if one.node == node]
    on_it = [str(one) for one in there if one.state == "RUNNING"]  # a requeue revives the dead
    if on_it:
        world.run("scontrol", "requeuehold", ",".join(on_it), user="root")
    new = f"ReqNodeList={'n2' if node.endswith('n1') else 'n1'}"
    for element in meant:
        world.run("scontrol", "update", f"JobId={element}", new, user="root")
    return bool(meant or on_it)


def _lose_state(world: World) -> Course:
    """slurmctld begins anew and knows no job; users submit their trainers again."""
    world.end_daemon("slurmctld")
    # Slurm cannot have two jobs with one id: an admin lets ids go on from another number.
    conf = (world.folder / "slurm.conf").read_text()
    first = re.findall(r"^FirstJobId=(\d+)$", conf, re.MULTILINE)[0]
    _edit(world, rf"FirstJobId={first}", f"FirstJobId={int(first) + _NEW_IDS}")
    world.lab.start_slurmctld("-c")
    if world.stream is not None:
        world.stream.forget()
    world.wait_for_slurmctld()
    for trainer in world.trainers:
        trainer.submit(world.site)
    yield f"all jobs are gone, {len(world.trainers)} trainers submitted again", 0.0


def _restart_all(world: World, names: Mapping[str, str] = MappingProxyType({})) -> None:
    world.silent |= set(world.nodes)
    for name in ("slurmctld", *world.nodes):
        if name in world.lab.daemons:
            world.end_daemon(name, signal.SIGTERM)
    world.lab.start_slurmctld()
    for node in world.nodes:
        world.lab.start_slurmd(node, names.get(node))


def _edit(world: World, pattern: str, text: str) -> None:
    conf = world.folder / "slurm.conf"
    conf.write_text(re.sub(pattern, text, conf.read_text()))


FAULTS: dict[str, Fault] = {
    "reconfigured": _reconfigure,
    "node-added": _add_node,
    "node-renamed": _rename_node,
    "slurm-state-lost": _lose_state,
}
