"""``bftrainer plan``: what a user sees, for good and for bad files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings

from bftrainer_slurm.cli.plan import plan
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.planner.instance import anonymous, document_of, parse, problem_of
from bftrainer_slurm.planner.problem import Costs, Problem
from tests.approved import approve_each
from tests.controller.worlds import cases
from tests.planner.problems import (
    planned,
    problem,
    problems,
    problems_in_parts,
    problems_with_classes,
)

PARTS = json.loads((Path(__file__).parents[2] / "examples/plan/parts-of-nodes.json").read_text())


def trainer(**changes: Any) -> dict[str, Any]:
    return {
        "min_nodes": 1,
        "max_nodes": 4,
        "current_nodes": 0,
        "rescale_up_s": 10,
        "rescale_down_s": 5.0,
        "curve_nodes": [0, 1, 4],
        "curve_objective": [0, 1.0, 3.0],
        **changes,
    }


def document(*trainers: Any, **changes: Any) -> dict[str, Any]:
    return {"forward_time_s": 100, "nodes": 5, "trainers": list(trainers), **changes}


def run(path: Path, *options: str) -> Result:
    return CliRunner().invoke(plan, [str(path), *options])


def written(folder: Path, content: Any) -> Path:
    path = folder / "problem.json"
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def without(key: str, whole: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in whole.items() if name != key}


MOVES = document(
    trainer(current_nodes=1),
    trainer(current_nodes=3, curve_objective=[0, 0.01, 0.01]),
    trainer(max_nodes=1),
    trainer(current_nodes=1, max_nodes=1),
    trainer(current_nodes=5),
    nodes=10,
)


def test_shows_what_moved_and_why(tmp_path: Path) -> None:
    path = written(tmp_path, MOVES)
    lines = run(path).stdout.splitlines()
    assert lines[0].startswith("objective 774.95 (optimal, ")
    assert lines[0].endswith("10 of 10 nodes used")
    assert [line.split()[:5] for line in lines[2:]] == [
        ["0", "1", "->", "4", "grew"],
        ["1", "3", "->", "0", "stopped"],
        ["2", "0", "->", "1", "started"],
        ["3", "1", "->", "1", "unchanged"],
        ["4", "5", "->", "4", "shrank"],
    ]
    assert lines[2].endswith("+200 over 100 s, rescaling costs 10")
    assert lines[3].endswith("its nodes bring more elsewhere")
    assert lines[6].endswith("it may have 1 to 4 nodes")
    found = json.loads(run(path, "--json").stdout)
    assert (found["objective"], found["status"]) == (pytest.approx(774.95), "optimal")
    assert found["nodes"] == [len(nodes) for nodes in found["placement"]] == [4, 0, 1, 1, 4]
    assert 0 < found["solve_s"] < 60


MAPPED = document(trainer(), trainer(max_nodes=1), current_map=["00110", "01000"])
BY_NODE = document(trainer(), trainer(max_nodes=1), node_trainer=[-1, 1, 0, 0, -1])


@cases(
    "content, placement",
    of_a_map=(MAPPED, [["n0", "n2", "n3", "n4"], ["n1"]]),
    of_a_list_of_nodes=(BY_NODE, [["n0", "n2", "n3", "n4"], ["n1"]]),
    of_nobody=(document(), []),
    of_no_nodes=(document(trainer(), nodes=0), [[]]),
    of_a_map_of_no_nodes=(document(trainer(), nodes=0, current_map=[""]), [[]]),
)
def test_says_who_has_which_node(tmp_path: Path, content: Any, placement: list[Any]) -> None:
    found = json.loads(run(written(tmp_path, content), "--json").stdout)
    assert (found["placement"], found["status"]) == (placement, "optimal")


@settings(max_examples=60, deadline=None)
@given(problems(tuple(Costs)) | problems_with_classes() | problems_in_parts())
def test_a_problem_is_read_as_it_was_written_and_the_child_is_told_all_that_counts(
    problem: Problem,
) -> None:
    assert parse(json.dumps(document_of(problem)).encode()) == problem
    sent = problem_of(anonymous(problem))
    assert sent.rows == problem.rows
    for one, its in zip(problem.trainers, sent.trainers, strict=True):
        assert sent.now(its) == problem.now(one)
        assert [sent.worth(its, n) for n in range(9)] == [problem.worth(one, n) for n in range(9)]
        parts = zip(sent.all_classes(), problem.all_classes(), strict=True)
        assert all(sent.may_use(its, a) == problem.may_use(one, b) for a, b in parts)


def test_plans_again_what_the_controller_has_planned(tmp_path: Path) -> None:
    lasting = problem(3, planned("17", "n0"), planned("18"), life_s={"n1": 60.0}, costs=Costs.PAUSE)
    lasting = replace(lasting, since_s={"n0": 5.0})
    history = History(tmp_path / "history.sqlite")
    history.add_problem(1.0, lambda: document_of(lasting))
    # Of the two idle nodes the last is under the same switch as its own.
    under = {"n0": "s1", "n1": "s2", "n2": "s1"}
    switched = replace(
        lasting, trainers=(replace(planned("17", "n0"), max_nodes=2),), switch_of=under
    )
    history.add_problem(2.0, lambda: document_of(switched))
    again = ["--from-history", "1", "--state", str(tmp_path), "--json"]
    (placed,) = json.loads(CliRunner().invoke(plan, again).stdout)["placement"]
    assert placed == ["n0", "n2"]
    asked = ["--from-history", "2", "--state", str(tmp_path)]
    found = json.loads(CliRunner().invoke(plan, [*asked, "--json"]).stdout)
    assert sum(found["nodes"]) == 3
    shown = CliRunner().invoke(plan, [*asked, "--problem"]).stdout
    assert parse(shown.encode()) == lasting


NAMED = {"node_names": ["a", "b"], "nodes": 2}
TWICE = ["00001", "00001"]
BAD_FILES = {
    "nothing": b"",
    "no JSON": b"{nodes: 3}",
    "bytes": b"\x00\xff\xfe\x80",
    "deep nesting": b"[" * 1_000_000,
    "endless digits": b'{"nodes": ' + b"9" * 10_000 + b"}",
    "no nodes": without("nodes", document()),
    "a trainer without curve": document(without("curve_nodes", trainer())),
    "negative nodes": document(nodes=-1),
    "huge nodes": document(nodes=10**12),
    "too many trainers": document(*[trainer()] * 10_001),
    "no forward time": without("forward_time_s", document()),
    "forward time 0": document(forward_time_s=0),
    "forward time NaN": document(forward_time_s=math.nan),
    "map without rows": document(trainer(), current_map=[]),
    "map with short rows": document(trainer(), current_map=["01"]),
    "map with letters": document(trainer(), current_map=["01x00"]),
    "map with one node twice": document(trainer(), trainer(), current_map=TWICE),
    "more current nodes than nodes": document(*[trainer(current_nodes=3)] * 2),
    "costs that move the cursor": document(costs="\x1b[2J"),
    "too few names": document(node_names=["a"]),
    "a name twice": document(**NAMED | {"node_names": ["a", "a"]}),
    "a name that moves the cursor": document(**NAMED | {"node_names": ["a", "\x1b[2J"]}),
    "holders that are not there": document(node_trainer=[0] * 5),
    "classes of nobody": document(classes=[{"name": "a"}, {"name": "b"}]),
    "a class that moves the cursor": document(classes=[{"name": "\x1b[2J"}]),
    "more GPUs than a node has": PARTS | {"node_gpus": [9, 3, 1, 8]},
    "GPUs of some nodes": PARTS | {"node_gpus": [8]},
    "GPUs of no class": PARTS | {"classes": None},
    "fewer GPUs than trainers have": PARTS | {"node_gpus": [8, 3, 0, 8]},
}
BAD_TRAINERS: dict[str, dict[str, Any]] = {
    "a trainer's name that moves the cursor": {"name": "\x1b[2J"},
    "maximum below minimum": {"min_nodes": 5},
    "curve negative": {"curve_objective": [0, -1, 1]},
    "curve not from 0": {"curve_objective": [1, 2, 3]},
    "curve too short": {"curve_objective": [0, 1]},
    "curve unordered": {"curve_nodes": [0, 4, 1]},
    "curve endless": {"curve_nodes": list(range(1001))},
    "nodes that are not there": {"held": [5]},
    "a node twice": {"held": [0, 0]},
}


def test_bad_files_are_refused_as_approved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bad, said = BAD_FILES.copy(), {}
    for what, changes in BAD_TRAINERS.items():
        bad[what] = document(trainer(), trainer(**changes))
    for what, content in bad.items():
        result = run(written(Path(), content))
        assert (result.exit_code, result.stdout) == (2, ""), what
        assert result.stderr.removesuffix("\n").isprintable(), what  # and one line
        said[what] = result.stderr
    approve_each(Path(__file__).with_name("bad_files.txt"), said)
