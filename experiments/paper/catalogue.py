"""The experiments, declared: which tables, of which runs. Nothing runs here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from experiments.paper import tables
from experiments.paper.runs import ALL_METHODS, ESSENTIAL, MAIN_METHODS, Run, free, method, papers
from experiments.paper.tables import Table, U, of_runs, over

FULL = Run("hpo-1000"), Run("imagenet-1001")  # of each table
QUICK = (Run("hpo-1000", nodes=256, hours=6.0),)
_FAST = 0.011  # 18 s and 12 s become 0.2 s and 0.13 s: what the elastic runtime aims at
_WHOLE_MACHINE_REPEAT = 8  # it would be done with the file's trainers before the week is over


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


Make: TypeAlias = Callable[[Run], Table]


def runs_of(chosen: Iterable[Experiment]) -> list[Run]:
    """Return what is to be run, the long ones first, so that the last do not run alone."""
    runs: set[Run] = set().union(*(experiment.runs() for experiment in chosen))
    return sorted(runs, key=lambda run: (-(run.nodes or 1_000_000), -run.at_once, str(run)))


def experiments(bases: Iterable[Run]) -> tuple[Experiment, ...]:
    """Return the experiments by number, each with its tables for each of these runs."""
    return tuple(
        Experiment(number, title, about, tuple(make(base) for make in makes for base in bases))
        for number, (title, about, *makes) in enumerate(_ALL, 1)
    )


def _by_at_once(base: Run) -> dict[str, Run]:
    return {str(count): replace(base, at_once=count) for count in (5, 10, 20, 35)}


def _forward_time(base: Run) -> Table:
    times_s = (10.0, 60.0, 120.0, 300.0, 600.0)
    columns = {f"{time_s:g} s": replace(base, forward_time_s=time_s) for time_s in times_s}
    title = "U of {trainers} trainers, {at_once} at once, by forward time"
    return over(base, "forward-time", title, columns | {"adaptive": base}, ALL_METHODS)


def _at_once(base: Run) -> Table:
    title = "U of {trainers} trainers, by how many train at once"
    return over(base, "at-once", title, _by_at_once(base), MAIN_METHODS, "at once")


def _rescale_costs(base: Run) -> Table:
    scales = (0.0, _FAST, 0.1, 0.5, 1.0, 2.0, 3.0)
    columns = {f"x {scale:g}": replace(base, scale=scale) for scale in scales}
    title = "U of {trainers} trainers, {at_once} at once, by rescale costs"
    return over(base, "rescale-costs", title, columns, ESSENTIAL)


def _fast_rescales(base: Run) -> Table:
    title = "U of {trainers} trainers at 0.2 s a rescale, by how many train at once"
    columns = _by_at_once(replace(base, scale=_FAST))
    return over(base, "fast", title, columns, ESSENTIAL, "at once")


def _steps(base: Run) -> Table:
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
    title = "From the paper's model to this planner: {trainers} trainers, {at_once} at once"
    return of_runs(base, "steps", title, columns, rows)


def _shape_of_curves(base: Run) -> Table:
    columns = {label: free(run) for label, run in _by_at_once(base).items()}
    measures = {
        "missing to dedicated nodes": tables.MISSING,
        "idle node-hours not used": tables.UNUSED,
    }
    rows = {row: tuple((run, one) for run in columns.values()) for row, one in measures.items()}
    title = "What free rescaling leaves: {trainers} trainers, by how many train at once"
    return tables.table(base, "shape", title, "at once", columns, rows)


def _whole_machine(base: Run) -> Table:
    run = replace(base, nodes=None, repeat=_WHOLE_MACHINE_REPEAT)
    columns = {
        "U": U,
        "pool used": tables.USED,
        "plan, median (ms)": tables.PLAN_MEDIAN_MS,
        "95th percentile (ms)": tables.PLAN_P95_MS,
        "replay (minutes)": tables.MINUTES,
    }
    rows = {row: vary(run) for row, vary in ESSENTIAL.items()}
    title = "All 4,734 nodes: {trainers} trainers, {at_once} at once"
    return of_runs(base, "whole-machine", title, columns, rows)


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
