"""What users do to their elements by hand, and a second controller."""

from __future__ import annotations

import shutil
import subprocess

from scripts.chaos_suite.faults.fault import Course, Fault, chosen
from scripts.chaos_suite.trainers import submitted
from scripts.chaos_suite.world import World

_GUEST_STARTS_S = 25.0


def scontrol(*forms: str, state: str = "RUNNING") -> Fault:
    """Let a user run one of these scontrol commands on an element in this state."""

    def fault(world: World) -> Course:
        element = chosen(world, lambda seen: seen.mine(state), f"{state} element")
        form, node = world.chance.choice(forms), world.chance.choice(world.nodes)
        words = form.format(element=element, array=element.array, node=node)
        done = world.run("scontrol", *words.split())
        said = f" ({done.stderr.strip()})" if done.returncode else ""
        yield f"scontrol {words}{said}"[:120], world.chance.uniform(0, 5)

    return fault


def _cancel(world: World) -> Course:
    """A trainer comes, one element of it is cancelled, and then all of it."""
    job = submitted(world.site, "inprocess", f"guest-{len(world.over)}")
    world.wait(world.chance.uniform(1, _GUEST_STARTS_S))
    world.run("scancel", f"{job.array}_{world.chance.randint(0, 1)}")
    world.wait(world.chance.uniform(0, 8))
    world.run("scancel", str(job.array))
    world.over.add(job.array)
    yield f"trainer {job.array}, an element, then all", 0.0


def _second_controller(world: World) -> Course:
    """Another one is started, on the same state folder or on one of its own."""
    state, detail = world.service.state, "same state folder"
    if world.chance.random() < 0.5:
        state, detail = world.folder / "second-state", "another state folder"
        state.mkdir(exist_ok=True)
        shutil.chown(state, "slurm", "slurm")
    try:
        done = world.run(*world.service.command[:-1], str(state), user="slurm")
        said = done.stderr.strip().splitlines()[-1:]
        if done.returncode == 0:
            world.violations["a second controller ends with exit code 0"] = None
    except subprocess.TimeoutExpired:
        said = []
        world.violations[f"a second controller on {detail} works as well"] = None
    yield f"{detail}: {said[0] if said else 'says nothing'}"[:160], 0.0


FAULTS: dict[str, Fault] = {
    "user-holds": scontrol("hold {element}"),
    "user-releases": scontrol("release {array}"),  # those that are held, too
    "user-requeues": scontrol("requeue {element}", "requeuehold {element}"),
    "user-limits": scontrol("update JobId={element} TimeLimit=1"),
    "user-moves": scontrol(
        "update JobId={element} ReqNodeList={node} StartTime=now+30", state="PENDING"
    ),
    "user-cancels": _cancel,
    "second-controller": _second_controller,
}
