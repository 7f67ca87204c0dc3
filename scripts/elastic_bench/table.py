"""The results as text for a terminal, and which of the targets are met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scripts.elastic_bench.chaos import Chaos
from scripts.elastic_bench.endtoend import EndToEnd
from scripts.elastic_bench.figures import summarise
from scripts.elastic_bench.measure import Measured

ROWS = (
    ("join_s", "node joins: pause of the others"),
    ("copy_s", "of that, copying the state"),
    ("kill_s", "node killed: pause of the others"),
    ("leave_s", "planned leave: pause of the others"),
    ("reclaim_s", "SIGTERM: pause of the others"),
    ("start_s", "joining agent started until its first step"),
    ("step_s", "a step with all nodes there"),
)
CLUSTER_ROWS = (
    ("taken_s", "ordinary job submitted until the others train on"),
    ("pause_s", "of that, the others' pause"),
    ("back_s", "node idle until training there"),
    ("warm_s", "of that, from the element's start"),
)
_TARGETS = {
    ("handler", "join_s"): 0.25,
    ("handler", "kill_s"): 0.30,
    ("handler", "leave_s"): 0.25,
    ("inprocess", "join_s"): 0.15,  # and the copying of the state
    ("inprocess", "kill_s"): 0.20,
    ("inprocess", "leave_s"): 0.10,
}
_WIDTH = 32


@dataclass(frozen=True, slots=True)
class Target:
    """What was asked of a median, and what it is. ``copy_s`` may come on top of ``most_s``."""

    setup: str
    row: str
    most_s: float
    median_s: float
    copy_s: float = 0.0

    @property
    def met(self) -> bool:
        """Whether it is reached."""
        return self.median_s <= self.most_s + self.copy_s

    def __str__(self) -> str:
        most = f"{self.most_s:.2f}" + (f" + {self.copy_s:.3f}" if self.copy_s else "")
        verdict, row = "met" if self.met else "MISSED", dict(ROWS)[self.row]
        return f"{verdict:<8}{self.setup}: {row}: {self.median_s:.3f} <= {most}"


def targets(model: str, all_measured: Sequence[Measured]) -> list[Target]:
    """Return the targets of all that was measured.

    With the large model those of the processes that go on: an unchanged script's own reading of
    its checkpoint is none of ours.
    """
    held = []
    for measured in all_measured:
        if model != "tiny" and measured.setup.name != "inprocess":
            continue
        for row, _ in ROWS:
            most_s = _TARGETS.get((measured.setup.name, row))
            found = summarise(getattr(measured, row))
            if most_s is not None and found is not None:
                copy = summarise(measured.copy_s) if row == "join_s" else None
                copy_s = copy.median if copy is not None else 0.0
                held.append(Target(measured.setup.name, row, most_s, found.median, copy_s))
    return held


def pauses(model: str, all_measured: Sequence[Measured]) -> str:
    """Return the table of the single events."""
    heads = "".join(f"{measured.setup.title:>{_WIDTH}}" for measured in all_measured)
    lines = [
        f"{model} model; seconds: median (least to most), of how many",
        f"{'':<44}{heads}",
    ]
    for row, text in ROWS:
        cells = "".join(f"{_pause(measured, row):>{_WIDTH}}" for measured in all_measured)
        lines.append(f"{text:<44}{cells}")
    if any(not measured.setup.parts for measured in all_measured):
        lines.append("* stock c10d knows no planned leave: SIGTERM, as Slurm sends it")
    for measured in all_measured:
        lines += [f"{measured.setup.title} FAILED: {words}" for words in measured.failures]
    lines += [str(one) for one in targets(model, all_measured)]
    return "\n".join(lines)


def _pause(measured: Measured, row: str) -> str:
    times_s = getattr(measured, row)
    star = "*" if times_s and row == "leave_s" and not measured.setup.parts else ""
    return star + _cell(times_s, 3)


def cluster(found: Sequence[EndToEnd]) -> str:
    """Return the table of what was measured end to end."""
    lines = [
        "one node of four taken and given back by Slurm, tiny model; "
        "seconds: median (least to most), of how many",
        f"{'':<52}" + "".join(f"{one.setup.title:>{_WIDTH}}" for one in found),
    ]
    for row, text in CLUSTER_ROWS:
        cells = "".join(f"{_cell(getattr(one, row), 2):>{_WIDTH}}" for one in found)
        lines.append(f"{text:<52}{cells}")
    for one in found:
        lines += [f"{one.setup.title} FAILED: {words}" for words in one.failures]
    return "\n".join(lines)


def _cell(times_s: Sequence[float], digits: int) -> str:
    found = summarise(times_s)
    if found is None:
        return "-"
    middle, least, most = (
        f"{time_s:.{digits}f}" for time_s in (found.median, found.least, found.most)
    )
    return f"{middle} ({least} to {most}) {found.count:>3}"


def chaos(results: Sequence[Chaos]) -> str:
    """Return the table of the random events in a row."""
    lines = [
        "random kills, joins and leaves in a row, not waiting for the trainer",
        f"{'':<32}{'EVENTS':>8}{'KILLS':>7}{'JOINS':>7}{'LEAVES':>7}{'WORLDS':>8}"
        f"{'TIME':>8}  TRAINS ON  {'STILL':>8}{'STEPS':>8}{'DONE TWICE':>12}{'MISSING':>9}"
        "  WEIGHTS",
    ]
    for one in results:
        made = one.account
        if one.same_weights is None:
            weights = "-"
        else:
            weights = "equal on all nodes" if one.same_weights else "DIFFER at the end"
        weights += f"; {made.differing} of {made.compared} steps differ"
        lines.append(
            f"{one.setup.title:<32}{one.kills + one.joins + one.leaves:>8}{one.kills:>7}"
            f"{one.joins:>7}{one.leaves:>7}{one.changes:>8}{one.seconds:>6.0f} s"
            f"  {'yes' if one.trains_on else 'NO':<9}  {one.still_s:>6.0f} s{made.steps:>8}"
            f"{made.repeated:>12}{made.missing:>9}  {weights}"
        )
        if one.last_words:
            lines.append(f"an agent says: {one.last_words}")
    return "\n".join(lines)
