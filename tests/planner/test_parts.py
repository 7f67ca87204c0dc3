"""Parts of nodes by hand: the rows of the supply, what finds room, and files."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bftrainer_slurm.planner.instance import Request, anonymous, document_of, parse, problem_of
from bftrainer_slurm.planner.packing import is_packed, pack_most
from bftrainer_slurm.planner.problem import NodeClass, Problem
from bftrainer_slurm.planner.solver import CHILD, Planner
from bftrainer_slurm.planner.supply import Row
from tests.planner.problems import planned

EXAMPLE = Path(__file__).parents[2] / "examples" / "plan" / "parts-of-nodes.json"
POOL = frozenset({"n0", "n1", "n2"})
FREE = {"n0": 8, "n1": 3, "n2": 1}


def parts(*gpus: int, held: str = "", free: dict[str, int] | None = None) -> Problem:
    """Three nodes of 8 GPUs, and a trainer for each size of elements; the first holds nodes."""
    trainers = [
        replace(planned(f"t{at}", held if at == 0 else ""), gpus=size)
        for at, size in enumerate(gpus)
    ]
    classes = (NodeClass("a100", POOL, gpus=8),)
    return Problem(POOL, 120.0, tuple(trainers), classes=classes, free=FREE | (free or {}))


def test_each_size_of_elements_has_a_row() -> None:
    rows = parts(1, 2, 4, 0).rows
    assert rows == (Row(0, 1, 12, 3), Row(0, 2, 5, 2), Row(0, 4, 2, 1), Row(0, 8, 1, 1))
    assert [rows[0].taken_by(row) for row in rows] == [1, 2, 4, 8]
    assert [rows[2].taken_by(row) for row in rows] == [0, 0, 1, 2]


def test_a_class_that_is_not_divided_has_one_row_as_before() -> None:
    problem = Problem(POOL, 120.0, (planned(),))
    assert problem.rows == (Row(0, 0, 3, 3),)


def test_a_whole_node_needs_all_of_its_gpus() -> None:
    problem = parts(0, 2)
    assert [problem.room(problem.trainers[0], row) for row in (0, 1)] == [0, 1]
    assert [problem.room(problem.trainers[1], row) for row in (0, 1)] == [2, 0]


def test_two_elements_of_a_trainer_are_never_on_one_node() -> None:
    problem = parts(1)
    assert pack_most(problem, [(3,)]) == [POOL]
    assert not problem.allows(problem.trainers[0], (4,))


def test_an_element_does_not_move_to_make_room(planner: Planner) -> None:
    """One GPU of the only free node: the whole-node trainer would have to push it aside."""
    problem = parts(1, 0, held="n0", free={"n1": 8, "n2": 0})
    rows = problem.rows
    assert [(row.gpus, row.amount) for row in rows if not row.frees] == [(1, 16), (8, 2), (8, 1)]
    assert [rows[1].taken_by(row) for row in rows] == [0, 1, 1, 1]  # the last one is held
    found = planner.plan(problem)
    assert found.status == "optimal"
    assert is_packed(problem, [found.assignment["t0"], found.assignment["t1"]])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"node_gpus": [9, 3, 1, 8]}, "free must have 0 to as many GPUs of a node as its class"),
        ({"node_gpus": [8]}, "node_gpus must have an entry, or null, for each node"),
        ({"classes": None}, "node_gpus needs classes that say how many gpus"),
        ({"node_gpus": [8, 3, 0, 8]}, "trainers have more GPUs of node n2 than are free"),
        ({"classes": [{"name": "a", "gpus": -1}]}, "gpus"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(change: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(json.dumps(json.loads(EXAMPLE.read_text()) | change).encode())


@pytest.mark.parametrize("held", [[4], [0, 0]])
def test_held_places_are_checked(held: list[int]) -> None:
    document = json.loads(EXAMPLE.read_text())
    document["trainers"][1]["held"] = held
    with pytest.raises(ValueError, match=r"trainers\[1\]: held must have different whole numbers"):
        parse(json.dumps(document).encode())


def test_a_problem_comes_back_from_its_file_and_its_line() -> None:
    problem = parse(EXAMPLE.read_bytes())
    assert parse(json.dumps(document_of(problem)).encode()) == problem
    again = problem_of(anonymous(problem))
    assert [one.gpus for one in again.trainers] == [8, 2, 1]
    assert sorted(again.free.values()) == [1, 3, 8, 8]


def test_the_child_sends_each_plan_once() -> None:
    request = msgspec.json.encode(Request(anonymous(parse(EXAMPLE.read_bytes())), 50.0))
    said = subprocess.run(CHILD, input=request + b"\n", capture_output=True, check=True, timeout=60)
    plans = [line for line in said.stdout.splitlines() if b"nodes" in line]
    assert len(plans) == len(set(plans)) >= 1


def test_a_trainer_that_shrinks_keeps_the_nodes_that_it_has_had_longest(planner: Planner) -> None:
    wide = parts(1, held="n0 n1 n2", free={"n0": 1, "n1": 1})
    (one,) = wide.trainers
    shrinks = replace(wide, trainers=(replace(one, max_nodes=1),))
    since_s = {"n0": 300.0, "n1": 200.0, "n2": 100.0}
    for oldest in POOL:
        problem = replace(shrinks, since_s=since_s | {oldest: 0.0})
        assert planner.plan(problem).assignment == {"t0": {oldest}}


def test_new_elements_go_where_holes_last_of_nodes_that_are_as_full(planner: Planner) -> None:
    alike = parts(4, free={"n1": 8, "n2": 8})
    (one,) = alike.trainers
    starts = replace(alike, trainers=(replace(one, max_nodes=1),))
    for lasts in POOL:
        life_s = dict.fromkeys(POOL, 60.0) | {lasts: 6000.0}
        problem = replace(starts, life_s=life_s)
        assert planner.plan(problem).assignment == {"t0": {lasts}}
