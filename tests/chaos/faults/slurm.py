"""What befalls Slurm: nodes, what admins configure, what users do to their elements by hand."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Sequence
from functools import partial

from scripts.labcluster.cluster import free_ports
from tests.chaos.faults.fault import Course, Fault, chosen, running
from tests.chaos.trainers import submitted
from tests.chaos.world import World

_EMPTY_S = 30.0  # the nodes are looked at every 4 s
_LONGER_S = 25.0  # than SlurmdTimeout and a ping: Slurm gives the node up
_NEW_IDS = 5_000
# Lists the elements that wait, each with the node that it is to start on.
_MEANT_FOR = ("squeue", "-h", "-r", "-t", "PD", "-p", "bftrainer", "-o", "%F_%K %n")
_GUEST_STARTS_S = 25.0


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
    empty = lambda: all(one.node != node for one in world.look().mine())  # noqa: E731
    if not world.wait_until(empty, _EMPTY_S):
        world.outcome.violations[f"{node} is drained, and an element stays there"] = None
    yield f"{node} drained", world.chance.uniform(1, 10)
    world.run(*update, "State=RESUME", user="root")


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
            world.wait_until(lambda: not _leave(world, before), _EMPTY_S)
        world.struck |= {before, after}
        world.lab.kill_host(node)
        _edit(world, rf"(?m)^NodeName={before} ", f"NodeName={after} ")
        world.lab.add_host(node)
        _restart_all(world, **{node: after})
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
    """Take all elements off a node, the held ones too that it is meant for; return if any is left.

    One that still ends there would do so for ever, once the node is not known any more.
    """
    listed = world.run(*_MEANT_FOR, user="root").stdout.splitlines()
    meant = [line.split()[0] for line in listed if line.split()[1:] == [node]]
    there = [one for one in world.look().elements or () if one.node == node]
    on_it = [str(one) for one in there if one.state == "RUNNING"]  # a requeue revives the dead
    if on_it:
        world.run("scontrol", "requeuehold", ",".join(on_it), user="root")
    new = f"ReqNodeList={'n2' if node.endswith('n1') else 'n1'}"
    for element in meant:
        world.run("scontrol", "update", f"JobId={element}", new, user="root")
    return bool(meant or any(one.state in ("RUNNING", "COMPLETING") for one in there))


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


def _restart_all(world: World, **names: str) -> None:
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


_ON_RUNNING = {
    "user-holds": ["hold {element}"],
    "user-releases": ["release {array}"],  # those that are held, too
    "user-requeues": ["requeue {element}", "requeuehold {element}"],
    "user-limits": ["update JobId={element} TimeLimit=1"],
}
_MOVE = "update JobId={element} ReqNodeList={node} StartTime=now+30"

FAULTS: dict[str, Fault] = {
    # Slurm starts the element elsewhere.
    "node-vanishes": partial(_cut_off, _LONGER_S, _LONGER_S + 10),
    "node-blinks": partial(_cut_off, 1, 6),
    "node-dies": _die,
    "node-drained": _drain,
    "reconfigured": _reconfigure,
    "node-added": _add_node,
    "node-renamed": _rename_node,
    "slurm-state-lost": _lose_state,
    **{name: partial(_scontrol, "RUNNING", forms) for name, forms in _ON_RUNNING.items()},
    "user-moves": partial(_scontrol, "PENDING", [_MOVE]),
    "user-cancels": _cancel,
}
