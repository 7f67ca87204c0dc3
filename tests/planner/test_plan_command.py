"""``bftrainer plan``: what a user sees, for good and for bad files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings

from bftrainer_slurm.cli.plan import plan
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.planner.instance import document_of, parse
from bftrainer_slurm.planner.problem import Costs, Problem
from tests.planner.problems import planned, problem, problems, problems_with_classes

NAN, INFINITY = float("nan"), float("inf")


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
    nodes=6,
)


def test_shows_what_moved_and_why(tmp_path: Path) -> None:
    lines = run(written(tmp_path, MOVES)).stdout.splitlines()
    assert lines[0].startswith("objective 489.95 (optimal, ")
    assert lines[0].endswith("6 of 6 nodes used")
    assert [line.split()[:5] for line in lines[2:]] == [
        ["0", "1", "->", "4", "grew"],
        ["1", "3", "->", "0", "stopped"],
        ["2", "0", "->", "1", "started"],
        ["3", "1", "->", "1", "unchanged"],
    ]
    assert lines[2].endswith("+200 over 100 s, rescaling costs 10")
    assert lines[3].endswith("its nodes bring more elsewhere")


def test_counts_a_rescale_by_the_costs_of_the_problem(tmp_path: Path) -> None:
    """It stands still for 20 s at its new size, in place of what it has now over 20 s."""
    grows = trainer(
        current_nodes=1, rescale_up_s=20, curve_nodes=[0, 1, 4], curve_objective=[0, 1.0, 4.0]
    )
    shown = run(written(tmp_path, document(grows, costs="pause"))).stdout
    assert shown.splitlines()[-1].endswith("+300 over 100 s, rescaling costs 80")


def test_says_when_bounds_are_why_a_trainer_shrank(tmp_path: Path) -> None:
    shown = run(written(tmp_path, document(trainer(current_nodes=5)))).stdout
    assert "5 -> 4" in shown
    assert "it may have 1 to 4 nodes" in shown


def test_json_has_counts_in_the_files_order_and_their_placement(tmp_path: Path) -> None:
    found = json.loads(run(written(tmp_path, MOVES), "--json").stdout)
    assert found["objective"] == pytest.approx(489.95)
    assert found["nodes"] == [4, 0, 1, 1]
    assert found["status"] == "optimal"
    assert 0 < found["solve_s"] < 60
    assert [len(nodes) for nodes in found["placement"]] == found["nodes"]


def test_the_map_says_who_has_which_node(tmp_path: Path) -> None:
    rows = ["00110", "01000"]
    mapped = document(trainer(), trainer(max_nodes=1), current_map=rows)
    placement = json.loads(run(written(tmp_path, mapped), "--json").stdout)["placement"]
    assert placement == [["n0", "n2", "n3", "n4"], ["n1"]]


@pytest.mark.parametrize(
    "empty",
    [document(), document(trainer(), nodes=0), document(trainer(), nodes=0, current_map=[""])],
)
def test_nothing_to_plan_is_a_plan(tmp_path: Path, empty: dict[str, Any]) -> None:
    found = json.loads(run(written(tmp_path, empty), "--json").stdout)
    assert (found["objective"], sum(found["nodes"]), found["status"]) == (0, 0, "optimal")


@settings(max_examples=60, deadline=None)
@given(problems(tuple(Costs)) | problems_with_classes())
def test_a_problem_is_read_as_it_was_written(problem: Problem) -> None:
    assert parse(json.dumps(document_of(problem)).encode()) == problem


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


@pytest.mark.parametrize("options", [[], ["file", "--from-history", "1"]])
def test_wants_a_file_or_a_history(options: list[str]) -> None:
    result = CliRunner().invoke(plan, options)
    assert result.exit_code == 2
    assert result.stderr == "bftrainer: give either a FILE or --from-history N\n"


def test_says_that_there_is_no_history(tmp_path: Path) -> None:
    result = CliRunner().invoke(plan, ["--from-history", "1", "--state", str(tmp_path)])
    assert result.exit_code == 2
    assert "history.sqlite" in result.stderr


def test_help_shows_an_example() -> None:
    assert "bftrainer plan problem.json --json" in CliRunner().invoke(plan, ["--help"]).stdout


BAD_FILES = {
    "nothing": (b"", "not JSON"),
    "no JSON": (b"{nodes: 3}", "not JSON"),
    "bytes": (b"\x00\xff\xfe\x80", "not JSON"),
    "deep nesting": (b"[" * 1_000_000, "Expected `object`, got `array`"),
    "endless digits": (b'{"nodes": ' + b"9" * 10_000 + b"}", "nodes: Integer value out of range"),
    "a list": ([], "Expected `object`, got `array`"),
    "a text": ('"nodes"', "Expected `object`, got `str`"),
    "no nodes": (without("nodes", document()), "nodes is missing"),
    "negative nodes": (document(nodes=-1), "nodes: Expected `int` >= 0"),
    "huge nodes": (document(nodes=10**12), "nodes: Expected `int` <= 1000000"),
    "fractional nodes": (document(nodes=2.5), "nodes: Expected `int`, got `float`"),
    "true nodes": (document(nodes=True), "nodes: Expected `int`, got `bool`"),
    "no trainers": (without("trainers", document()), "trainers is missing"),
    "trainers of another type": (document(trainers={}), "trainers: Expected `array`"),
    "too many trainers": (
        document(*[trainer()] * 10_001),
        "trainers: Expected `array` of length <= 10000",
    ),
    "a trainer of another type": (
        document(3, current_map=["00000"]),
        "trainers[0]: Expected `object`",
    ),
    "no forward time": (without("forward_time_s", document()), "forward_time_s is missing"),
    "forward time 0": (document(forward_time_s=0), "forward_time_s must be above 0"),
    "forward time NaN": (document(forward_time_s=NAN), "not JSON"),
    "forward time huge": (document(forward_time_s=10**400), "forward_time_s: Number out of range"),
    "map of another type": (document(current_map=3), "current_map: Expected `array | null`"),
    "map without rows": (document(trainer(), current_map=[]), "current_map must have a row"),
    "map with short rows": (document(trainer(), current_map=["01"]), "for each of the 5 nodes"),
    "map with letters": (document(trainer(), current_map=["01x00"]), "a 0 or 1"),
    "map with one node twice": (
        document(trainer(), trainer(), current_map=["00001", "00001"]),
        "current_map must give a node to one trainer at most",
    ),
    "more current nodes than nodes": (
        document(trainer(current_nodes=3), trainer(current_nodes=3)),
        "current_nodes of all trainers must be at most nodes, 5",
    ),
}
NAMED = {"node_names": ["a", "b"], "nodes": 2}
BAD_FILES |= {
    "costs that move the cursor": (document(costs="\x1b[2J"), "costs: Invalid enum value"),
    "costs of another kind": (document(costs=["pause"]), "costs: Expected `str`"),
    "too few names": (document(node_names=["a"]), "node_names must be 5 different names"),
    "a name twice": (document(**NAMED | {"node_names": ["a", "a"]}), "different names"),
    "a name that moves the cursor": (document(**NAMED | {"node_names": ["a", "\x1b[2J"]}), "names"),
    "holders that are not there": (document(node_trainer=[0] * 5), "node_trainer must have"),
    "lives of text": (
        document(node_life_s=["long"] * 5),
        "node_life_s[0]: Expected `float | null`",
    ),
    "negative lives": (document(node_life_s=[-1] * 5), "node_life_s[0]: Expected `float` >= 0"),
    "no classes": (document(classes=[]), "classes: Expected `array` of length >= 1"),
    "classes of nobody": (
        document(classes=[{"name": "a", "hardware": ""}, {"name": "b"}]),
        "node_class must have",
    ),
    "classes without names": (
        document(classes=[{"hardware": ""}], node_class=[0] * 5),
        "name is missing",
    ),
}
BAD_TRAINERS = {
    "a name of another type": ({"name": 3}, "name: Expected `str | null`"),
    "a negative pause": ({"paused_s": -1}, "paused_s: Expected `float` >= 0"),
    "a start that costs NaN": ({"start_cost": NAN}, "not JSON"),
    "classes barred by number": ({"barred": [1]}, "barred[0]: Expected `str`"),
    "negative current nodes": ({"current_nodes": -1}, "current_nodes: Expected `int` >= 0"),
    "minimum 0": ({"min_nodes": 0}, "min_nodes: Expected `int` >= 1"),
    "maximum below minimum": ({"min_nodes": 5}, "needs 1 <= min_nodes <= max_nodes"),
    "text": ({"max_nodes": "4"}, "max_nodes: Expected `int`, got `str`"),
    "none": ({"rescale_up_s": None}, "rescale_up_s: Expected `float`"),
    "negative cost": ({"rescale_down_s": -1}, "rescale_down_s: Expected `float` >= 0"),
    "infinite cost": ({"rescale_up_s": INFINITY}, "not JSON"),
    "curve NaN": ({"curve_objective": [0, NAN, 1]}, "not JSON"),
    "curve negative": (
        {"curve_objective": [0, -1, 1]},
        "curve_objective[1]: Expected `float` >= 0",
    ),
    "curve not from 0": ({"curve_objective": [1, 2, 3]}, "curve_objective must start with 0"),
    "curve too short": ({"curve_objective": [0, 1]}, "one value for each node count"),
    "curve of text": ({"curve_nodes": "014"}, "curve_nodes: Expected `array`"),
    "curve unordered": ({"curve_nodes": [0, 4, 1]}, "ascending node counts"),
    "curve empty": (
        {"curve_nodes": [], "curve_objective": []},
        "curve_objective must start with 0",
    ),
    "curve fractional": ({"curve_nodes": [0, 1.5, 4]}, "curve_nodes[1]: Expected `int`"),
    "curve endless": (
        {"curve_nodes": list(range(1001)), "curve_objective": [0] * 1001},
        "curve_nodes: Expected `array` of length <= 1000",
    ),
}


def assert_refused(result: Result, path: Path, message: str) -> None:
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.strip("\n").isprintable()
    assert str(path) in result.stderr
    assert message in result.stderr


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_refuses_a_file_with(tmp_path: Path, content: Any, message: str) -> None:
    path = written(tmp_path, content)
    assert_refused(run(path), path, message)


@pytest.mark.parametrize(("changes", "message"), BAD_TRAINERS.values(), ids=BAD_TRAINERS)
def test_refuses_a_trainer_with(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = written(tmp_path, document(trainer(), trainer(**changes)))
    assert_refused(run(path), path, message)


@pytest.mark.parametrize("key", without("current_nodes", trainer()))
def test_refuses_a_trainer_without(tmp_path: Path, key: str) -> None:
    path = written(tmp_path, document(trainer(), without(key, trainer())))
    assert_refused(run(path), path, f"trainers[1]: {key} is missing")


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.json"
    assert_refused(run(path), path, "No such file")


def test_refuses_a_folder(tmp_path: Path) -> None:
    assert_refused(run(tmp_path), tmp_path, "Is a directory")


def test_refuses_a_file_without_an_end() -> None:
    assert_refused(run(Path("/dev/zero")), Path("/dev/zero"), "larger than 64 MiB")


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "soon"])
def test_refuses_a_time_limit(tmp_path: Path, limit: str) -> None:
    result = run(written(tmp_path, MOVES), "--time-limit", limit)
    assert result.exit_code == 2
    assert "--time-limit" in result.stderr
