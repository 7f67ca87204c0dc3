"""A small run of ``scripts/run bench-scale``. Nothing rests on its times."""

from __future__ import annotations

import random

from scripts.turn_cost import Cluster, measure, rendered


def test_the_controller_gives_all_nodes_to_trainers_and_takes_them_back() -> None:
    phases = {one.name: one for one in measure(Cluster(200, random.Random(1)), 8)}
    assert phases["start"].elements == phases["at rest"].elements == 100
    freed, taken = phases["nodes freed at once"], phases["elements reclaimed at once"]
    assert freed.elements >= phases["one change a second"].elements + 10
    assert taken.elements == freed.elements - 20
    assert all(len(one.cpu_ms) == 8 and min(one.cpu_ms) > 0 for one in phases.values())
    assert rendered([*phases.values()]).count("\n") == len(phases)
