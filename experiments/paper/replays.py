"""Runs, several at a time, each worker with a planner of its own; what came of them is kept.

The recorded data is that of ``../shared/data``.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

from bftrainer_slurm.cli.simulation import ReplayOptions
from bftrainer_slurm.cli.simulation import run as replay_once
from bftrainer_slurm.planner.problem import Plan, PlanMaker, Problem
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.drive import Outcome, dedicated_samples
from bftrainer_slurm.replay.logs.holes import holes_in, select
from bftrainer_slurm.replay.policies import any_node
from bftrainer_slurm.replay.trace import Trace, read_events
from bftrainer_slurm.replay.trainers import TrainerSpec, read_trainers
from experiments.paper.runs import DEDICATED, Result, Run
from scripts.benchkit.command import RefusedError, json_text, replace_file
from scripts.benchkit.figures import summarise
from scripts.labcluster.stage import REPO

SUMMIT = REPO.parent / "shared" / "data" / "summit-2021-02"

# By method, the policy of the replay; "pauses" is the planner, told nothing of when holes end.
METHODS = {
    "equal-share": "equal-share",
    "paper": "paper",
    "pauses": "milp",
    "milp": "milp",
    "oracle": "oracle",
}


class Store:
    """Results by run, in one file; each one is on the disk before the next is begun."""

    def __init__(self, path: Path) -> None:
        """Read the file where there is one. Raises RefusedError: it holds none."""
        self._path = path
        self.results: dict[Run, Result] = {}
        if path.exists():
            try:
                self.results = dict(map(_read, json.loads(path.read_text())))
            except (OSError, ValueError, TypeError, KeyError) as error:
                why = " ".join(str(error).split())[:200]
                raise RefusedError(f"{path}: holds no results: {why}; remove it") from error

    def add(self, run: Run, result: Result) -> None:
        """Keep a result. Raises OSError."""
        self.results[run] = result
        entries = [{"run": one, "result": found} for one, found in self.results.items()]
        replace_file(self._path, json_text(entries) + "\n")


class Asked:
    """Asks a planner the problems that a method leaves, and counts plans by their status."""

    def __init__(self, planner: PlanMaker, method: str) -> None:
        self._planner = planner
        self._plainer = method == "pauses"
        self.statuses: Counter[str] = Counter()

    def plan(self, problem: Problem) -> Plan:
        """Return the planner's plan for the problem, or for the plainer one."""
        plan = self._planner.plan(any_node(problem) if self._plainer else problem)
        self.statuses[plan.status] += 1
        return plan


def execute(runs: Sequence[Run], jobs: int, commit: str) -> Iterator[tuple[Run, Result]]:
    """Yield each run with its result as soon as it is there.

    A caller that stops early, or is interrupted, gives up only the runs that are under way.
    """
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as executor:
        futures = {executor.submit(execute_one, run, commit): run for run in runs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            executor.shutdown(wait=False, cancel_futures=True)


def execute_one(run: Run, commit: str) -> Result:
    """Run once; the planner's child is started ahead, so that no plan waits for it."""
    begin_s = time.perf_counter()
    outcome, plan_s = None, [0.0]
    with Planner() as planner:
        planner.warm_up()
        asked = Asked(planner, run.method)
        if run.method == DEDICATED:
            samples = _on_dedicated_nodes(run, asked)
        else:
            outcome, plan_s = _replay(run, _trace(run.nodes, run.hours), asked)
            samples = outcome.samples
    times = summarise(plan_s)
    return Result(
        samples=samples,
        outcome=outcome,
        plans=dict(asked.statuses),
        plan_median_s=times.median,
        plan_p95_s=times.p95,
        plan_max_s=times.most,
        seconds=time.perf_counter() - begin_s,
        commit=commit,
    )


def trainers_of_run(run: Run) -> tuple[TrainerSpec, ...]:
    """Return the trainers, all of them waiting from the start."""
    trainers = run.repeat * _trainers(run.trainers)
    return tuple(replace(trainer, submit_s=0.0) for trainer in trainers)


@lru_cache(maxsize=4)
def _trace(nodes: int | None, hours: float | None) -> Trace:
    return select(read_events(SUMMIT / "node-events-week1.parquet"), nodes, None, hours)


@lru_cache(maxsize=4)
def _trainers(name: str) -> tuple[TrainerSpec, ...]:
    return read_trainers(SUMMIT / f"trainers-{name}.json")


def _replay(run: Run, trace: Trace, planner: PlanMaker) -> tuple[Outcome, list[float]]:
    options = ReplayOptions(
        policy=METHODS[run.method],
        at_once=run.at_once,
        forward_time_s=run.forward_time_s,
        rescale_scale=run.scale,
    )
    trainers = trainers_of_run(run)
    outcome, plan_s = replay_once(trace, trainers, options, planner)
    if outcome.trainers_done == len(trainers):
        raise ValueError(f"all {len(trainers)} trainers are done before the end: repeat them")
    return outcome, list(plan_s)


def _on_dedicated_nodes(run: Run, planner: PlanMaker) -> float:
    trace, on_dedicated = _trace(run.nodes, run.hours), replace(run, method="milp")
    idle_s = float(holes_in(trace).length_s.sum())
    mean_nodes = idle_s / (trace.end_s - trace.start_s)
    return dedicated_samples(
        trace, mean_nodes, lambda other: _replay(on_dedicated, other, planner)[0]
    )


def _read(entry: dict[str, dict[str, object]]) -> tuple[Run, Result]:
    result = dict(entry["result"])
    outcome = result["outcome"]
    if isinstance(outcome, dict):
        result["outcome"] = Outcome(**outcome)
    return Run(**entry["run"]), Result(**result)  # type: ignore[arg-type]
