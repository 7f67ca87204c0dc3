"""The controller's disk and clock: full, damaged; set ahead and back."""

from __future__ import annotations

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


FAULTS: dict[str, Fault] = {
    "disk-full": partial(_full_disk, False),
    "disk-full-restart": partial(_full_disk, True),
    "history-damaged": _damage,
    "clock-steps": _step_clock,
}
