"""The experiments, declared: which tables, of which runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from scripts.experiments import measures
from scripts.experiments.measures import U
from scripts.experiments.references import references
from scripts.experiments.runs import Run, free, papers
from scripts.experiments.size import FAST, Size, each
from scripts.experiments.tables import Cell, Row, Table, of_runs, over
from scripts.experiments.variations import ALL_METHODS, ESSENTIAL, MAIN_METHODS, method


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


def experiments(size: Size) -> tuple[Experiment, ...]:
    """Return the experiments of this size, by number."""
    return (
        _forward_time(size),
        _at_once(size),
        _rescale_costs(size),
        _steps(size),
        _shape_of_curves(size),
        *([_all_nodes(size), _references(size)] if size.other_parts else []),
    )


def runs_of(chosen: Iterable[Experiment]) -> list[Run]:
    """Return what is to be run, the long ones first, so that the last do not run alone."""
    runs: set[Run] = set().union(*(experiment.runs() for experiment in chosen))
    return sorted(runs, key=lambda run: (-(run.nodes or 1_000_000), -run.at_once, str(run)))


def _forward_time(size: Size) -> Experiment:
    def table(name: str, label: str, base: Run) -> Table:
        columns = {f"{time:g} s": replace(base, forward_time_s=time) for time in _floats(size)}
        columns["adaptive"] = base
        title = f"U of {label} trainers, {base.at_once} at once, by forward time"
        return over(f"forward-time-{name}", title, "", columns, ALL_METHODS)

    return Experiment(
        1,
        "Forward time",
        "How far ahead a plan looks when it weighs what nodes bring against what a rescale costs. "
        "Equal share is the paper's baseline.",
        each(size, table),
    )


def _floats(size: Size) -> list[float]:
    return [float(time) for time in size.forward_times_s]


def _at_once(size: Size) -> Experiment:
    def table(name: str, label: str, base: Run) -> Table:
        columns = {str(count): replace(base, at_once=count) for count in size.at_once}
        title = f"U of {label} trainers, by how many train at once"
        return over(f"at-once-{name}", title, "at once", columns, MAIN_METHODS)

    return Experiment(
        2,
        "Trainers at once",
        "More trainers at once use the same nodes on steeper parts of their curves, and lose less "
        "when the pool changes.",
        each(size, table),
    )


def _rescale_costs(size: Size) -> Experiment:
    def table(name: str, label: str, base: Run) -> Table:
        columns = {f"x {scale:g}": replace(base, scale=float(scale)) for scale in size.scales}
        title = f"U of {label} trainers, {base.at_once} at once, by rescale costs"
        return over(f"rescale-costs-{name}", title, "", columns, ESSENTIAL)

    def fast(name: str, label: str, base: Run) -> Table:
        columns = {
            str(count): replace(base, at_once=count, scale=FAST) for count in size.fast_at_once
        }
        title = f"U of {label} trainers at 0.2 s a rescale, by how many train at once"
        return over(f"fast-{name}", title, "at once", columns, ESSENTIAL)

    return Experiment(
        3,
        "Rescale costs",
        "The recorded costs (x 1) are 18 s to grow and 12 s to shrink for HPO; x 0.011 is the "
        "0.2 s that the project's own elastic runtime aims at.",
        each(size, table) + each(size, fast),
    )


def _steps(size: Size) -> Experiment:
    columns = {
        "U": U,
        "share of the gap closed": measures.GAP_CLOSED,
        "lost to rescaling": measures.LOST_TO_RESCALING,
        "lost to reclaims": measures.LOST_TO_RECLAIMS,
    }

    def table(name: str, label: str, base: Run) -> Table:
        at_120 = replace(base, forward_time_s=120.0)
        rows = {
            "the paper's model, 120 s": papers(base),
            "+ rescales are pauses": method("pauses")(at_120),
            "+ placement by expected life": method("survival")(at_120),
            "+ trainers kept in reserve": method("milp")(at_120),
            "+ adaptive forward time": base,
            "ends known (oracle)": method("oracle")(base),
            "rescaling free (U_free)": free(base),
        }
        title = f"From the paper's model to this planner: {label} trainers, {base.at_once} at once"
        return of_runs(f"steps-{name}", title, "", columns, rows, "dots")

    return Experiment(
        4,
        "Each step past the paper",
        "Each row adds one thing to the row above; with the ends known, nodes are placed by the "
        "true end of each hole, which nobody can know. The gap is that between the paper's model "
        "and free rescaling, U_free; losses are in units of U.",
        each(size, table),
    )


def _shape_of_curves(size: Size) -> Experiment:
    def table(name: str, label: str, base: Run) -> Table:
        columns = {str(count): free(replace(base, at_once=count)) for count in size.at_once}
        rows = {
            "missing to dedicated nodes": measures.MISSING,
            "idle node-hours not used": measures.UNUSED,
        }
        filled = tuple(
            Row(row, tuple(Cell(run, measure) for run in columns.values()))
            for row, measure in rows.items()
        )
        title = f"What free rescaling leaves: {label} trainers, by how many train at once"
        return Table(f"shape-{name}", title, "at once", tuple(columns), filled, "lines")

    return Experiment(
        5,
        "What the shape of the curves leaves",
        "U_free is below 1 without any cost of rescaling: on a concave curve a pool that is now "
        "large, now small brings less than its mean does (Jensen's inequality), and nodes beyond "
        "what the trainers can use bring nothing. No planner can get that back.",
        each(size, table),
    )


def _all_nodes(size: Size) -> Experiment:
    return Experiment(
        6,
        "The whole machine",
        "The same week on all nodes, the trainers repeated so that they do not run out, and how "
        "long plans and the replay itself took.",
        each(size, _whole_machine),
    )


def _references(size: Size) -> Experiment:
    return Experiment(
        7,
        "Beside DESIGN.md",
        "The reference values are from an independent replay of another seven days.",
        (references(size.part),),
    )


_WHOLE_MACHINE_REPEAT = 8  # it would be done with the file's trainers before the week is over


def _whole_machine(name: str, label: str, base: Run) -> Table:
    run = replace(base, nodes=None, repeat=_WHOLE_MACHINE_REPEAT)
    columns = {
        "U": U,
        "pool used": measures.USED,
        "plan, median (ms)": measures.PLAN_MEDIAN_MS,
        "95th percentile (ms)": measures.PLAN_P95_MS,
        "replay (minutes)": measures.MINUTES,
    }
    rows = {row: vary(run) for row, vary in ESSENTIAL.items()}
    title = f"All 4,734 nodes: {label} trainers, {run.at_once} at once"
    return of_runs(f"whole-machine-{name}", title, "", columns, rows)
