"""The experiments, declared: which tables, of which runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from scripts.experiments import measures
from scripts.experiments.measures import Others, U
from scripts.experiments.runs import Run, free, papers
from scripts.experiments.tables import Cell, Row, Table, of_runs, over

TRAINERS = {"hpo-1000": "HPO", "imagenet-1001": "ImageNet"}
EVENT_1000_S = 1612988526.0  # where the replays of DESIGN.md begin
FAST = 0.011  # 18 s and 12 s become 0.2 s and 0.13 s: what the elastic runtime aims at


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


@dataclass(frozen=True, slots=True)
class Size:
    """How much of it all to do: the part of the trace, and which values of what is varied."""

    part: Run
    trainers: tuple[str, ...] = tuple(TRAINERS)
    forward_times_s: tuple[float, ...] = (10, 60, 120, 300, 600)
    at_once: tuple[int, ...] = (5, 10, 20, 35)
    pool_only: tuple[int, ...] = (2, 5, 10, 20, 35, 70)
    scales: tuple[float, ...] = (0, FAST, 0.1, 0.5, 1, 2, 3)
    fast_at_once: tuple[int, ...] = (10, 20, 35)  # with rescale costs of FAST
    references: bool = True
    whole_machine: bool = True


FULL = Size(Run("hpo-1000"))
QUICK = Size(
    Run("hpo-1000", nodes=256, hours=6.0),
    trainers=("hpo-1000",),
    forward_times_s=(120,),
    at_once=(5, 10),
    pool_only=(5, 10),
    scales=(FAST, 1),
    fast_at_once=(5, 10),
    references=False,
    whole_machine=False,
)


def experiments(size: Size) -> tuple[Experiment, ...]:
    """Return the experiments of this size, by number."""
    return (
        _forward_time(size),
        _at_once(size),
        _rescale_costs(size),
        _steps(size),
        _shape_of_curves(size),
        *([_all_nodes(size)] if size.whole_machine else []),
    )


def runs_of(chosen: Iterable[Experiment]) -> list[Run]:
    """Return what is to be run, the long ones first, so that the last do not run alone."""
    runs: set[Run] = set().union(*(experiment.runs() for experiment in chosen))
    return sorted(runs, key=lambda run: (-(run.nodes or 1_000_000), -run.at_once, str(run)))


def method(name: str, **others: float | None) -> Others:
    """Return the variation of a run that plans by another method."""
    return lambda run: replace(run, method=name, **others)  # type: ignore[arg-type]


EQUAL_SHARE = method("equal-share", forward_time_s=None)  # it does not look ahead
_ALL_METHODS: dict[str, Others] = {
    "equal share": EQUAL_SHARE,
    "the paper's model": method("paper"),
    "this planner": method("milp"),
    "rescaling free (U_free)": free,
}
_MAIN_METHODS: dict[str, Others] = {
    "equal share": EQUAL_SHARE,
    "the paper's model, 120 s": papers,
    "this planner, 120 s": method("milp", forward_time_s=120.0),
    "this planner, adaptive": method("milp", forward_time_s=None),
    "rescaling free (U_free)": free,
}
_ESSENTIAL = {
    label: vary for label, vary in _MAIN_METHODS.items() if label != "this planner, 120 s"
}  # for what takes long


def _each(size: Size, table: Callable[[str, str, Run], Table]) -> tuple[Table, ...]:
    """Return a table for each set of trainers."""
    return tuple(
        table(name, TRAINERS[name], replace(size.part, trainers=name)) for name in size.trainers
    )


def _forward_time(size: Size) -> Experiment:
    def table(name: str, label: str, base: Run) -> Table:
        columns = {f"{time:g} s": replace(base, forward_time_s=time) for time in _floats(size)}
        columns["adaptive"] = base
        title = f"U of {label} trainers, {base.at_once} at once, by forward time"
        return over(f"forward-time-{name}", title, "", columns, _ALL_METHODS)

    tables = _each(size, table)
    if size.references:
        tables += (_references(size.part),)
    return Experiment(
        1,
        "Forward time",
        "How far ahead a plan looks when it weighs what nodes bring against what a rescale costs. "
        "Equal share is the paper's baseline.",
        tables,
    )


def _floats(size: Size) -> list[float]:
    return [float(time) for time in size.forward_times_s]


def _references(part: Run) -> Table:
    """DESIGN.md's independent replay of another seven days, beside the same here."""
    recorded: dict[str, tuple[float, Others]] = {
        "equal share, 10 at once": (0.761, EQUAL_SHARE),
        "paper's model, 10 s": (0.817, method("paper", forward_time_s=10.0)),
        "60 s": (0.835, method("paper", forward_time_s=60.0)),
        "120 s": (0.834, papers),
        "300 s": (0.837, method("paper", forward_time_s=300.0)),
        "600 s": (0.830, method("paper", forward_time_s=600.0)),
    }
    for count, equal, model in ((5, 0.658, 0.729), (20, 0.816, 0.888), (35, 0.836, 0.911)):
        recorded[f"equal share, {count} at once"] = (equal, _at(count, EQUAL_SHARE))
        recorded[f"paper's model, 120 s, {count} at once"] = (model, _at(count, papers))
    late = replace(part, from_s=EVENT_1000_S)
    rows = tuple(
        Row(label, (value, Cell(vary(late), U), Cell(vary(part), U)))
        for label, (value, vary) in recorded.items()
    )
    columns = ("DESIGN.md: another 7 days", "from event 1000", "the whole week")
    title = "U of HPO trainers beside the reference values of DESIGN.md"
    pools = Row(
        "nodes in the pool, mean",
        (85.0, *(Cell(run, measures.POOL) for run in (papers(late), papers(part)))),
    )
    return Table("references", title, "", columns, (*rows, pools))


def _at(count: int, vary: Others) -> Others:
    return lambda run: replace(vary(run), at_once=count)


def _at_once(size: Size) -> Experiment:
    def table(name: str, label: str, base: Run) -> Table:
        columns = {str(count): replace(base, at_once=count) for count in size.at_once}
        title = f"U of {label} trainers, by how many train at once"
        return over(f"at-once-{name}", title, "at once", columns, _MAIN_METHODS)

    return Experiment(
        2,
        "Trainers at once",
        "More trainers at once use the same nodes on steeper parts of their curves, and lose less "
        "when the pool changes.",
        _each(size, table),
    )


def _rescale_costs(size: Size) -> Experiment:
    def table(name: str, label: str, base: Run) -> Table:
        columns = {f"x {scale:g}": replace(base, scale=float(scale)) for scale in size.scales}
        title = f"U of {label} trainers, {base.at_once} at once, by rescale costs"
        return over(f"rescale-costs-{name}", title, "", columns, _ESSENTIAL)

    def fast(name: str, label: str, base: Run) -> Table:
        columns = {
            str(count): replace(base, at_once=count, scale=FAST) for count in size.fast_at_once
        }
        title = f"U of {label} trainers at 0.2 s a rescale, by how many train at once"
        return over(f"fast-{name}", title, "at once", columns, _ESSENTIAL)

    return Experiment(
        3,
        "Rescale costs",
        "The recorded costs (x 1) are 18 s to grow and 12 s to shrink for HPO; x 0.011 is the "
        "0.2 s that the project's own elastic runtime aims at.",
        _each(size, table) + _each(size, fast),
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
            "+ premium on starts": method("milp")(at_120),
            "+ adaptive forward time": base,
            "ends known (oracle)": method("oracle")(base),
            "rescaling free (U_free)": free(base),
        }
        title = f"From the paper's model to this planner: {label} trainers, {base.at_once} at once"
        return of_runs(f"steps-{name}", title, "", columns, rows, "bars")

    return Experiment(
        4,
        "Each step past the paper",
        "Each row adds one thing to the row above; with the ends known, nodes are placed by the "
        "true end of each hole, which nobody can know. The gap is that between the paper's model "
        "and free rescaling, U_free; losses are in units of U.",
        _each(size, table),
    )


def _shape_of_curves(size: Size) -> Experiment:
    def table(name: str, label: str, base: Run) -> Table:
        columns = {str(count): free(replace(base, at_once=count)) for count in size.pool_only}
        title = f"1 - U_free of {label} trainers, by how many train at once"
        rows: dict[str, Others] = {"missing though rescaling is free": lambda run: run}
        return over(f"shape-{name}", title, "at once", columns, rows, measures.MISSING)

    return Experiment(
        5,
        "What the shape of the curves leaves",
        "U_free is below 1 without any cost of rescaling: on a concave curve a pool that is now "
        "large, now small brings less than its mean does (Jensen's inequality), and nodes beyond "
        "what the trainers can use bring nothing. No planner can get that back.",
        _each(size, table),
    )


def _all_nodes(size: Size) -> Experiment:
    return Experiment(
        6,
        "The whole machine",
        "The same week on all nodes, and how long plans and the replay itself took.",
        _each(size, _whole_machine),
    )


def _whole_machine(name: str, label: str, base: Run) -> Table:
    run = replace(base, nodes=None)
    columns = {
        "U": U,
        "pool used": measures.USED,
        "plan, median (ms)": measures.PLAN_MEDIAN_MS,
        "95th percentile (ms)": measures.PLAN_P95_MS,
        "replay (minutes)": measures.MINUTES,
    }
    rows = {row: vary(run) for row, vary in _ESSENTIAL.items()}
    title = f"All 4,734 nodes: {label} trainers, {run.at_once} at once"
    return of_runs(f"whole-machine-{name}", title, "", columns, rows)
