"""Results outlast the process that made them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.paper.replays import Store
from scripts.benchkit.command import RefusedError
from tests.paper.made import RESULTS, RUN, result


def test_what_was_added_is_there_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "results.json")
    for run, found in RESULTS.items():
        store.add(run, found)
    assert Store(tmp_path / "new" / "results.json").results == RESULTS


def test_dedicated_nodes_have_no_outcome(tmp_path: Path) -> None:
    alone = replace(result(1.0), outcome=None)
    Store(tmp_path / "results.json").add(RUN, alone)
    assert Store(tmp_path / "results.json").results == {RUN: alone}


@pytest.mark.parametrize("text", ["{", "[1]", "[{}]", '[{"run": {"nonsense": 1}, "result": {}}]'])
def test_a_file_that_holds_no_results_is_refused_with_the_remedy(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(RefusedError, match=r"results\.json.*remove it"):
        Store(path)
