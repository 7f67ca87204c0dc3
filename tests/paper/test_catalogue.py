"""The experiments are whole: whatever they show can be run."""

from __future__ import annotations

import pytest

from experiments.paper.catalogue import FULL, QUICK, Size, experiments, runs_of
from experiments.paper.replays import METHODS
from experiments.paper.runs import DEDICATED
from tests.paper import made

SIZES = pytest.mark.parametrize("size", [FULL, QUICK], ids=["full", "quick"])


@SIZES
def test_every_run_has_a_method_that_there_is(size: Size) -> None:
    methods = {run.method for run in runs_of(experiments(size))}
    assert methods == {*METHODS, DEDICATED}


@SIZES
def test_equal_share_runs_once_whatever_the_forward_time(size: Size) -> None:
    runs = runs_of(experiments(size))
    assert {run.forward_time_s for run in runs if run.method == "equal-share"} == {None}


@SIZES
def test_tables_have_names_of_their_own(size: Size) -> None:
    names = [table.name for one in experiments(size) for table in one.tables]
    assert len(names) == len(set(names))


@SIZES
def test_whatever_a_table_shows_is_among_its_runs(size: Size) -> None:
    for table in (one for experiment in experiments(size) for one in experiment.tables):
        results = {run: made.result(1.0 + run.at_once + run.scale) for run in table.runs()}
        assert table.values(results).keys() == table.rows.keys()


def test_no_run_is_made_twice() -> None:
    runs = runs_of(experiments(FULL))
    assert len(runs) == len(set(runs))


def test_the_whole_machine_comes_first_since_it_takes_longest() -> None:
    whole = [run.nodes is None for run in runs_of(experiments(FULL))]
    assert whole == sorted(whole, reverse=True)
    assert any(whole)
