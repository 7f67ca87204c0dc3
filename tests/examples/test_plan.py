"""The planning problem of the planner guide, with the plans that the guide explains."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bftrainer_slurm.cli import main
from scripts.labcluster.stage import REPO

_PROBLEM = REPO / "examples" / "plan" / "two-trainers.json"


@pytest.mark.parametrize(
    ("nodes", "forward_s", "planned"),
    [(6, 120, [4, 2]), (6, 20, [2, 2]), (4, 120, [2, 2]), (4, 300, [3, 1])],
)
def test_the_plan_is_the_one_that_the_guide_explains(
    nodes: int, forward_s: int, planned: list[int], tmp_path: Path
) -> None:
    problem = json.loads(_PROBLEM.read_text()) | {"nodes": nodes, "forward_time_s": forward_s}
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(problem))
    result = CliRunner().invoke(main, ["plan", str(file), "--json"])
    assert json.loads(result.output)["nodes"] == planned
