"""What is read off results: U and U_free (``replay.efficiency``), and where the rest is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from bftrainer_slurm.replay.drive import Outcome
from scripts.experiments.runs import Result, Run, dedicated, free, papers

Results: TypeAlias = Mapping[Run, Result]
Others: TypeAlias = Callable[[Run], Run]


@dataclass(frozen=True, slots=True)
class Measure:
    """``of`` reads it off the results of a run and of the ``others`` that it is held against."""

    of: Callable[[Results, Run], float]
    others: tuple[Others, ...] = ()
    decimals: int = 3

    def needs(self, run: Run) -> set[Run]:
        """Return the runs whose results it takes."""
        return {run, *(other(run) for other in self.others)}


def _efficiency(results: Results, run: Run) -> float:
    return results[run].samples / results[dedicated(run)].samples


def _gap_closed(results: Results, run: Run) -> float:
    """Of the gap between the paper's model and U_free."""
    paper = results[_papers_at_recorded_costs(run)].samples
    return (results[run].samples - paper) / (results[free(run)].samples - paper)


def _papers_at_recorded_costs(run: Run) -> Run:
    return replace(papers(run), scale=1.0)


def _lost(name: str) -> Callable[[Results, Run], float]:
    """Samples lost, as a share of those on dedicated nodes: in the units of U."""

    def share(results: Results, run: Run) -> float:
        lost: float = getattr(_outcome(results, run), name)
        return lost / results[dedicated(run)].samples

    return share


def _used(results: Results, run: Run) -> float:
    outcome = _outcome(results, run)
    return outcome.used_node_hours / outcome.idle_node_hours


def _outcome(results: Results, run: Run) -> Outcome:
    outcome = results[run].outcome
    if outcome is None:
        raise ValueError("dedicated nodes have no outcome")
    return outcome


U = Measure(_efficiency, (dedicated,))
MISSING = Measure(lambda results, run: 1 - _efficiency(results, run), (dedicated,))
GAP_CLOSED = Measure(_gap_closed, (_papers_at_recorded_costs, free), decimals=2)
LOST_TO_RESCALING = Measure(_lost("lost_to_rescaling"), (dedicated,))
LOST_TO_RECLAIMS = Measure(_lost("lost_to_reclaims"), (dedicated,))
USED = Measure(_used)
UNUSED = Measure(lambda results, run: 1 - _used(results, run))
POOL = Measure(lambda results, run: _outcome(results, run).mean_pool_nodes, decimals=1)
PLAN_MEDIAN_MS = Measure(lambda results, run: 1e3 * results[run].plan_median_s, decimals=1)
PLAN_P95_MS = Measure(lambda results, run: 1e3 * results[run].plan_p95_s, decimals=1)
MINUTES = Measure(lambda results, run: results[run].seconds / 60, decimals=1)
