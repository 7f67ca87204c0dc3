"""Planning curves from one plan to the next: an explorer goes on until there is an answer.

An explorer that has just got more nodes is not measured there yet. If another one were chosen then,
its curve would fall back, and the plan would take the nodes away before they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.curves.planning import Standing, explorers, planning_curves

_LOOKING_S = 600.0  # an explorer without more nodes by then makes room for another one


@dataclass(frozen=True, slots=True)
class _Looking:
    """An explorer: its curve is raised above that many nodes until this time.

    ``known`` are the sizes that had been measured when it began.
    """

    above: int
    until_s: float
    known: frozenset[int]


class Exploration:
    """Remembers the explorers."""

    def __init__(self) -> None:
        self._looking: dict[int, _Looking] = {}
        self._asked: dict[int, Standing] = {}
        self._curves: dict[int, ThroughputCurve] = {}
        self.expected: dict[int, ThroughputCurve] = {}  # the same curves without explorers

    def curves(self, trainers: Mapping[int, Standing], now_s: float) -> dict[int, ThroughputCurve]:
        """Return the curves to plan with; the same ones as long as nothing has changed."""
        self._looking = {
            key: looking
            for key, looking in self._looking.items()
            if key in trainers and _goes_on(looking, trainers[key], now_s)
        }
        asked = {
            key: replace(one, above=self._looking[key].above) if key in self._looking else one
            for key, one in trainers.items()
        }
        if asked != self._asked:
            keys, standings = list(asked), list(asked.values())
            self._curves = dict(zip(keys, planning_curves(standings), strict=True))
            expected = planning_curves(standings, exploring=False)
            self.expected = dict(zip(keys, expected, strict=True))
            for index in explorers(standings):
                one = standings[index]
                looking = _Looking(one.nodes, now_s + _LOOKING_S, frozenset(one.fit.sizes))
                self._looking.setdefault(keys[index], looking)
            self._asked = asked
        return self._curves


def _goes_on(looking: _Looking, one: Standing, now_s: float) -> bool:
    # A size in between that was known before does not tell what more nodes bring.
    new = one.nodes > looking.above and one.nodes not in looking.known
    seen = new and one.fit.has_measured(one.nodes)
    return not seen and one.nodes >= looking.above and now_s < looking.until_s
