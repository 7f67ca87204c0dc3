"""The experiments, declared: which tables, of which runs, and how much of it all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from experiments.paper import tables
from experiments.paper.runs import (
    ALL_METHODS,
    ESSENTIAL,
    MAIN_METHODS,
    Run,
    free,
    method,
    papers,
)
from experiments.paper.tables import Table, U, of_runs, over

TRAINERS = {"hpo-1000": "HPO", "imagenet-1001": "ImageNet"}
FAST = 0.011  # 18 s and 12 s become 0.2 s and 0.13 s: what the elastic runtime aims at
_WHOLE_MACHINE_REPEAT = 8  # it would be done with the file's trainers before the week is over


@dataclass(frozen=True, slots=True)
class Size:
    """How much of it all to do: the part of the trace, and which values of what is varied."""

    part: Run
    trainers: tuple[str, ...] = tuple(TRAINERS)
    forward_times_s: tuple[float, ...] = (10.0, 60.0, 120.0, 300.0, 600.0)
    at_once: tuple[int, ...] = (5, 10, 20, 35)
    scales: tuple[float, ...] = (0.0, FAST, 0.1, 0.5, 1.0, 2.0, 3.0)
    fast_at_once: tuple[int, ...] = (10, 20, 35)  # with rescale costs of FAST
    whole_machine: bool = True


FULL = Size(Run("hpo-1000"))
QUICK = Size(
    Run("hpo-1000", nodes=256, hours=6.0),
    trainers=("hpo-1000",),
    forward_times_s=(120.0,),
    at_once=(5, 10),
    scales=(FAST, 1.0),
    fast_at_once=(5, 10),
    whole_machine=False,
)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A question, and the tables that answer it."""

    number: int
    title: str
    about: str
    tables: tuple[Table, ...]

    def runs(self) -> set[Run]:
        """Return all runs that it needs."""
        return set().union(*(table.runs() for table in self.tables))


Make: TypeAlias = Callable[[Size, str, str, Run], Table]


def runs_of(chosen: Iterable[Experiment]) -> list[Run]:
    """Return what is to be run, the long ones first, so that the last do not run alone."""
    runs: set[Run] = set().union(*(experiment.runs() for experiment in chosen))
    return sorted(runs, key=lambda run: (-(run.nodes or 1_000_000), -run.at_once, str(run)))


def experiments(size: Size) -> tuple[Experiment, ...]:
    """Return the experiments of this size, by number."""
    return tuple(
        Experiment(number, title, about, tuple(_each(size, *makes)))
        for number, (title, about, *makes) in enumerate(_ALL, 1)
        if size.whole_machine or _whole_machine not in makes
    )


def _each(size: Size, *makes: Make) -> Iterator[Table]:
    """Yield tables for each set of trainers: of its file's name, its label, and its plain run."""
    for make in makes:
        for name in size.trainers:
            yield make(size, name, TRAINERS[name], replace(size.part, trainers=name))


def _forward_time(size: Size, name: str, label: str, base: Run) -> Table:
    columns = {f"{time:g} s": replace(base, forward_time_s=time) for time in size.forward_times_s}
    columns["adaptive"] = base
    title = f"U of {label} trainers, {base.at_once} at once, by forward time"
    return over(f"forward-time-{name}", title, "", columns, ALL_METHODS)


def _at_once(size: Size, name: str, label: str, base: Run) -> Table:
    columns = {str(count): replace(base, at_once=count) for count in size.at_once}
    title = f"U of {label} trainers, by how many train at once"
    return over(f"at-once-{name}", title, "at once", columns, MAIN_METHODS)


def _rescale_costs(size: Size, name: str, label: str, base: Run) -> Table:
    columns = {f"x {scale:g}": replace(base, scale=scale) for scale in size.scales}
    title = f"U of {label} trainers, {base.at_once} at once, by rescale costs"
    return over(f"rescale-costs-{name}", title, "", columns, ESSENTIAL)


def _fast_rescales(size: Size, name: str, label: str, base: Run) -> Table:
    columns = {str(n): replace(base, at_once=n, scale=FAST) for n in size.fast_at_once}
    title = f"U of {label} trainers at 0.2 s a rescale, by how many train at once"
    return over(f"fast-{name}", title, "at once", columns, ESSENTIAL)


def _steps(size: Size, name: str, label: str, base: Run) -> Table:
    at_120 = replace(base, forward_time_s=120.0)
    rows = {
        "the paper's model, 120 s": papers(base),
        "+ rescales are pauses": method("pauses")(at_120),
        "+ placement by expected life": method("milp")(at_120),
        "+ adaptive forward time": base,
        "ends known (oracle)": method("oracle")(base),
        "rescaling free (U_free)": free(base),
    }
    columns = {
        "U": U,
        "share of the gap closed": tables.GAP_CLOSED,
        "lost to rescaling": tables.LOST_TO_RESCALING,
        "lost to reclaims": tables.LOST_TO_RECLAIMS,
    }
    title = f"From the paper's model to this planner: {label} trainers, {base.at_once} at once"
    return of_runs(f"steps-{name}", title, columns, rows, "dots")


def _shape_of_curves(size: Size, name: str, label: str, base: Run) -> Table:
    columns = {str(count): free(replace(base, at_once=count)) for count in size.at_once}
    measures = {
        "missing to dedicated nodes": tables.MISSING,
        "idle node-hours not used": tables.UNUSED,
    }
    rows = {row: tuple((run, one) for run in columns.values()) for row, one in measures.items()}
    title = f"What free rescaling leaves: {label} trainers, by how many train at once"
    return Table(f"shape-{name}", title, "at once", tuple(columns), rows, "lines")


def _whole_machine(size: Size, name: str, label: str, base: Run) -> Table:
    run = replace(base, nodes=None, repeat=_WHOLE_MACHINE_REPEAT)
    columns = {
        "U": U,
        "pool used": tables.USED,
        "plan, median (ms)": tables.PLAN_MEDIAN_MS,
        "95th percentile (ms)": tables.PLAN_P95_MS,
        "replay (minutes)": tables.MINUTES,
    }
    rows = {row: vary(run) for row, vary in ESSENTIAL.items()}
    title = f"All 4,734 nodes: {label} trainers, {run.at_once} at once"
    return of_runs(f"whole-machine-{name}", title, columns, rows)


_ALL: tuple[tuple[str, str, *tuple[Make, ...]], ...] = (
    (
        "Forward time",
        "How far ahead a plan looks when it weighs what nodes bring against what a rescale "
        "costs. Equal share is the paper's baseline.",
        _forward_time,
    ),
    (
        "Trainers at once",
        "More trainers at once use the same nodes on steeper parts of their curves, and lose "
        "less when the pool changes.",
        _at_once,
    ),
    (
        "Rescale costs",
        "The recorded costs (x 1) are 18 s to grow and 12 s to shrink for HPO; x 0.011 is the "
        "0.2 s that the project's own elastic runtime aims at.",
        _rescale_costs,
        _fast_rescales,
    ),
    (
        "Each step past the paper",
        "Each row adds one thing to the row above; with the ends known, nodes are placed by "
        "the true end of each hole, which nobody can know. The gap is that between the paper's "
        "model and free rescaling, U_free; losses are in units of U.",
        _steps,
    ),
    (
        "What the shape of the curves leaves",
        "U_free is below 1 without any cost of rescaling: on a concave curve a pool that is "
        "now large, now small brings less than its mean does (Jensen's inequality), and nodes "
        "beyond what the trainers can use bring nothing. No planner can get that back.",
        _shape_of_curves,
    ),
    (
        "The whole machine",
        "The same week on all nodes, the trainers repeated so that they do not run out, "
        "and how long plans and the replay itself took.",
        _whole_machine,
    ),
)
