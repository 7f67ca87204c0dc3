"""Runs each script of ``corpus`` as a trainer on a private cluster, and checks what becomes of it.

It must form one group and survive the loss of a node, or say why it cannot be elastic.
"""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.benchkit.steps import Step, StepLog
from scripts.labcluster import LabError
from scripts.labcluster.site import QUICK, Site
from scripts.labcluster.users import give
from scripts.labcluster.waiting import wait_until

# The controller must not carry what it learnt, or a node's failure, from one shape to the next.
SETTINGS = {**QUICK, "bad_node_s": 1, "forward_time_s": 600}
# All nodes share this host's processors, so a start may take minutes.
PATIENCE_S = 400.0
_FRESH_S = 5.0  # a process that has not reported for so long does not train


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a shape. Times are in seconds; None: it did not get that far."""

    shape: Shape
    wrong: str = ""
    processes: int | None = None  # in the group, on all nodes
    joined_s: float | None = None  # since the start of its last node
    went_on_s: float | None = None  # since the start of the ordinary job
    message_s: float | None = None  # since the start of its last node


def groups(steps: Sequence[Step], now_s: float, since_s: float = 0.0) -> list[list[Step]]:
    """Return the groups that train at this moment: the last step of each process that does."""
    last = {(one.node, one.process): one for one in steps}
    members = defaultdict[str, list[Step]](list)
    for one in last.values():
        if one.time_s > max(since_s, now_s - _FRESH_S):
            members[one.more["group"]].append(one)
    return list(members.values())


def whole(group: Sequence[Step]) -> bool:
    """Return whether all ranks of a group train."""
    return {one.more["rank"] for one in group} == set(range(max(one.world for one in group)))


def run(site: Site, shape: Shape, nodes: int) -> Outcome:
    """Run a shape as a trainer on up to so many nodes, all of the cluster; end it."""
    folder = site.folder()
    shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
    for path in folder.rglob("*"):
        give(path, "alice")
    words = ("sbatch", "--parsable", "--bftrainer", "-N", f"1-{nodes}", "--output=%a.out")
    done = site.run(*words, shape.file, cwd=folder, check=False)
    if done.returncode != 0:
        return Outcome(shape, f"refused: {(done.stderr or '').strip()}"[:300])
    array = int(done.stdout.partition(";")[0])
    try:
        return _judge(site, shape, array, folder, nodes)
    except TimeoutError as error:
        return Outcome(shape, str(error))
    finally:
        site.end(array)
        site.lab.wait_until_idle()
        shutil.rmtree(folder)


def _judge(site: Site, shape: Shape, array: int, folder: Path, nodes: int) -> Outcome:
    running = set[str]()

    def all_run() -> bool:
        states = (line.split() for line in site.lab.squeue(array, "%t %N"))
        running.clear()
        running.update(state[1] for state in states if state[0] == "R")
        return len(running) == nodes

    wait_until(all_run, PATIENCE_S, f"it does not run on {nodes} nodes")
    began_s = time.monotonic()
    if shape.message:
        wait_until(lambda: shape.message in said(folder), PATIENCE_S, "no message says why")
        return Outcome(shape, message_s=time.monotonic() - began_s)
    log = StepLog(folder / "steps")
    group = _wait_for_group(log, running, 0.0)
    joined_s = time.monotonic() - began_s
    (first,) = (one.node for one in group if one.more["rank"] == 0)
    with site.taken(1, "-w", first):
        taken_s = time.monotonic()
        _wait_for_group(log, running - {first}, taken_s)
        went_on_s = time.monotonic() - taken_s
    return Outcome(shape, processes=len(group), joined_s=joined_s, went_on_s=went_on_s)


def _wait_for_group(log: StepLog, nodes: set[str], since_s: float) -> list[Step]:
    """Wait until these nodes train in one whole group, and nobody else trains; return the group."""
    found = list[list[Step]]()

    def together() -> bool:
        found[:] = groups(log.all(), time.monotonic(), since_s)
        return len(found) == 1 and whole(found[0]) and {one.node for one in found[0]} == nodes

    try:
        wait_until(together, PATIENCE_S)
    except TimeoutError:
        of_each = ("+".join(sorted({one.node for one in group})) for group in found)
        what = " and ".join(of_each) or "nobody trains"
        raise TimeoutError(f"no group of {'+'.join(sorted(nodes))}: {what}") from None
    return found[0]


def said(folder: Path) -> str:
    """Return what a trainer's elements have written into their output."""
    return "\n".join(path.read_text(errors="replace") for path in folder.glob("*.out"))


def run_all(
    site: Site, chosen: list[Shape], nodes: int, tell: Callable[[str], None]
) -> list[Outcome]:
    """Run shapes one after the other.

    Raises:
        LabError: the cluster can no longer be used.
    """
    outcomes = []
    for shape in chosen:
        try:
            outcomes.append(run(site, shape, nodes))
        except TimeoutError as error:  # a part of it still runs
            raise LabError(f"{shape.name} does not end: {error}") from error
        tell(f"{shape.name}: {outcomes[-1].wrong or 'as it should be'}")
    return outcomes


FOLDER = Path(__file__).resolve().parent / "corpus"


@dataclass(frozen=True, slots=True)
class Shape:
    """A batch script: what starts its training, and the message if that cannot be elastic."""

    name: str
    launcher: str
    message: str = ""  # that its output must contain; empty: its nodes form one group

    @property
    def file(self) -> str:
        """The script's name in the folder."""
        return f"{self.name}.sh"


def _read(path: Path) -> Shape | None:
    """Return the shape that a script's first comments describe; None: other scripts call it."""
    said = dict[str, str]()
    for line in path.read_text().splitlines()[1:]:
        key, colon, value = line.removeprefix("# ").partition(": ")
        if not line.startswith("# ") or not colon:
            break
        said[key] = value
    if "launcher" not in said:
        return None
    return Shape(path.stem, said["launcher"], said.get("message", ""))


def shapes() -> dict[str, Shape]:
    """Return all shapes by name, those that form one group first."""
    found = filter(None, map(_read, sorted(FOLDER.glob("*.sh"))))
    return {one.name: one for one in sorted(found, key=lambda one: bool(one.message))}
