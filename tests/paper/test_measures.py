"""What is read off results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.paper import tables as measures
from experiments.paper.runs import dedicated, free
from tests.paper.made import RESULTS, RUN, result


def test_efficiency_is_held_against_dedicated_nodes() -> None:
    assert measures.U.of(RESULTS, RUN) == pytest.approx(0.85)


def test_half_of_the_way_from_the_papers_model_to_free_rescaling_is_half_of_the_gap() -> None:
    assert measures.GAP_CLOSED.of(RESULTS, RUN) == pytest.approx(0.5)


def test_free_rescaling_closes_all_of_the_gap() -> None:
    assert measures.GAP_CLOSED.of(RESULTS, free(RUN)) == pytest.approx(1.0)


def test_losses_are_in_units_of_efficiency() -> None:
    assert measures.LOST_TO_RESCALING.of(RESULTS, RUN) == pytest.approx(0.02)


def test_what_is_missing_and_what_is_reached_make_one() -> None:
    assert measures.MISSING.of(RESULTS, RUN) + measures.U.of(RESULTS, RUN) == pytest.approx(1.0)


def test_the_used_share_is_that_of_the_idle_node_hours() -> None:
    assert measures.USED.of(RESULTS, RUN) == pytest.approx(0.9)


def test_dedicated_nodes_have_no_idle_node_hours() -> None:
    alone = {RUN: replace(result(1.0), outcome=None)}
    with pytest.raises(ValueError, match="dedicated"):
        measures.USED.of(alone, RUN)


def test_rescale_costs_change_nothing_of_what_they_are_held_against() -> None:
    costly = replace(RUN, scale=3.0, forward_time_s=60.0, method="paper")
    assert (free(costly), dedicated(costly)) == (free(RUN), dedicated(RUN))
