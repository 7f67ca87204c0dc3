"""The command line of ``scripts/run bench-curves``: what plans lose, after 0 to 50 of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import click
import numpy as np

from bftrainer_slurm.planner.solver import Planner
from experiments.curves.regret import (
    METHODS,
    Outcome,
    known,
    made_curves,
    recorded_curves,
    run,
    steady,
    wandering,
)
from scripts.benchkit.command import Findings, bench_command, number
from scripts.benchkit.text import markdown
from scripts.labcluster.stage import REPO

RECORDED = REPO.parent / "shared/data/summit-2021-02/trainers-imagenet-1001.json"
AFTER = (0, 1, 2, 5, 10, 20, 50)
TRAINERS = 10
FIRST_SEED = 1000  # the constants of planner/curves were chosen with seeds below 20
KNOWN = "known"
WAYS = {KNOWN: lambda: known} | METHODS
POOLS = {"wandering": wandering, "steady": steady}


@dataclass(frozen=True, slots=True)
class Row:
    """Of one method in one case, after each number of plans: regrets in percent, rescales."""

    curves: str
    pool: str
    method: str
    after_plans: tuple[int, ...]
    regret: list[float]  # of the next plan, against the best one from where things stand
    rescales: list[float]  # a trainer, so far
    regret_of_all: float  # of all plans together, against those made with known curves


@bench_command()
@number("--runs", 5, 1, 1000, "Seeds a case.")
def main(runs: int) -> Findings:
    """Measure what plans lose because throughput curves are not known, after 0 to 50 plans.

    Ten trainers, the real planner with CBC; "controller" learns from reports, as the daemon does.
    Uses the recorded ImageNet models of ../shared/data where they are there, and made curves.

    \b
    Example:
      scripts/run bench-curves --runs 3 --json
    """
    kinds = ("recorded", "made") if RECORDED.exists() else ("made",)
    seeds = range(FIRST_SEED, FIRST_SEED + runs)
    jobs = list(product(kinds, POOLS, WAYS, seeds))
    with Planner(time_limit_s=60.0) as planner, click.progressbar(jobs, file=sys.stderr) as bar:
        planner.warm_up()
        found = {job: one_run(planner, *job) for job in bar}
    rows = []
    for case in product(kinds, POOLS, METHODS):
        best, own = ([found[*case[:2], way, n] for n in seeds] for way in (KNOWN, case[2]))
        rows.append(Row(*case, AFTER, *figures(own, best)))
    return Findings(table(rows), rows)


def one_run(planner: Planner, curves: str, pool: str, way: str, seed: int) -> list[Outcome]:
    """Plan once more than the greatest number in the table."""
    recorded = curves == "recorded"
    true = recorded_curves(RECORDED, TRAINERS, seed) if recorded else made_curves(TRAINERS, seed)
    return run(planner.plan, WAYS[way](), true, POOLS[pool](AFTER[-1] + 1, seed), seed)


def figures(
    runs: Sequence[Sequence[Outcome]], best: Sequence[Sequence[Outcome]]
) -> tuple[list[float], list[float], float]:
    """Return the regrets and the rescales of a row, and the regret of all plans."""
    reached = np.array([[one.reached for one in outcomes] for outcomes in runs])
    possible = np.array([[one.possible for one in outcomes] for outcomes in runs])
    rescales = np.array([[one.rescales for one in outcomes] for outcomes in runs])
    best_of_all = sum(one.reached for outcomes in best for one in outcomes)
    regret = 100 * (1 - reached.sum(axis=0) / possible.sum(axis=0))
    regret_of_all = 100 * (1 - float(reached.sum()) / best_of_all)
    after = list(AFTER)
    return (
        regret[after].round(2).tolist(),
        rescales.mean(axis=0)[after].round(1).tolist(),
        round(regret_of_all, 2),
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    last = (f"all {AFTER[-1] + 1} plans", "rescales by 10, by 50")
    cells = []
    for one in rows:
        by_ten, by_fifty = (one.rescales[AFTER.index(n)] for n in (10, 50))
        percents = (f"{percent:.1f}" for percent in (*one.regret, one.regret_of_all))
        names = (f"{one.curves}, {one.pool}", one.method)
        cells.append((*names, *percents, f"{by_ten:.0f}, {by_fifty:.0f}"))
    return markdown(("curves, pool", "method", *map(str, AFTER), *last), cells)
