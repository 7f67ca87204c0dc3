"""What befalls the controller beside signals: its disk, its clock, a second controller."""

from __future__ import annotations

import shutil
import subprocess
from functools import partial

from tests.chaos.faults.fault import Course, Fault
from tests.chaos.service import set_clock
from tests.chaos.world import World


def _full_disk(restart: bool, world: World) -> Course:
    """Fill the disk of the controller's state; with ``restart`` both services start there."""
    filler = world.service.state / "filler"
    subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=512"], stderr=subprocess.DEVNULL)
    if restart:
        world.service.kill()
        world.service.keeper.kill()
    seconds = world.chance.uniform(10, 25)
    killed = ", controller and keeper killed" if restart else ""
    yield f"full for {seconds:.0f} s{killed}", seconds
    filler.unlink()


def _damage(world: World) -> Course:
    """Write nonsense into the history file, cut it off, or make it no database at all."""
    world.service.kill(hold=True)
    path = world.service.state / "history.sqlite"
    how = world.chance.choice(("pages", "header", "half"))
    size = path.stat().st_size
    with path.open("r+b") as file:
        if how == "half":
            file.truncate(size // 2)
        else:
            begin = 0 if how == "header" else min(4096, size // 2)
            file.seek(begin)
            file.write(world.chance.randbytes(max(512, size - begin)))
    if world.chance.random() < 0.5:
        for beside in world.service.state.glob("history.sqlite-*"):
            beside.unlink()
    world.service.start()
    yield how, 0.0


def _step_clock(world: World) -> Course:
    seconds = world.chance.choice((-86400, -3600, -120, 120, 3600, 86400))
    set_clock(world.folder, seconds)
    yield f"{seconds:+,} s, and back", world.chance.uniform(10, 20)
    set_clock(world.folder, 0)


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
            world.outcome.violations["a second controller ends with exit code 0"] = None
    except subprocess.TimeoutExpired:
        said = []
        world.outcome.violations[f"a second controller on {detail} works as well"] = None
    yield f"{detail}: {said[0] if said else 'says nothing'}"[:160], 0.0


FAULTS: dict[str, Fault] = {
    "disk-full": partial(_full_disk, False),
    "disk-full-restart": partial(_full_disk, True),
    "history-damaged": _damage,
    "clock-steps": _step_clock,
    "second-controller": _second_controller,
}
