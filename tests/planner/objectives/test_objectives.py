"""Objectives by name: what each makes of a trainer; a site's own, and one that is nonsense."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.objectives import Facts, ObjectiveError, curves_of, find, known
from tests.controller.worlds import cases
from tests.planner.problems import curves

STEEP = ThroughputCurve((0, 1, 2, 4, 8), (0.0, 100.0, 200.0, 400.0, 800.0))
SIZES = (0, 1, 2, 4, 8, 16, 32, 64)


def amdahl(serial: float, unit: float = 1.0) -> ThroughputCurve:
    """A curve after Amdahl's law, ``unit`` samples/s on one node."""
    values = (unit * n / (1 + serial * (n - 1)) if n else 0.0 for n in SIZES)
    return ThroughputCurve(SIZES, tuple(values))


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    """Any trainer that the controller may know."""
    least = draw(st.integers(1, 6))
    return Facts(
        curve=draw(curves()),
        min_nodes=least,
        max_nodes=draw(st.integers(least, 40)),
        weight=draw(st.floats(1e-3, 1000)),
        user=draw(st.sampled_from("abc")),
        nodes=draw(st.integers(0, 40)),
        waited_s=draw(st.floats(0, 1e7)),
        done=draw(st.none() | st.floats(0, 1)),
        noise=draw(st.floats(0, 1e6) | st.just(math.inf)),
    )


METRICS = ("throughput", "speedup", "efficiency", "goodput")
MODIFIERS = ("", "+finish", "+fairness", "+finish+fairness", "+fairness+finish")
NAMES = [metric + modifiers for metric in METRICS for modifiers in MODIFIERS]
ONE, PLAIN = Facts(STEEP, 1, 8, weight=2.0), Facts(STEEP, 1, 8)


def curve(name: str, one: Facts) -> ThroughputCurve:
    return find(name)([one])[0]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)  # of each, and most of them are sums of the same
@given(trainers=st.lists(facts(), max_size=5))
def test_every_objective_gives_each_trainer_a_finite_curve(
    name: str, trainers: list[Facts]
) -> None:
    for one, result in zip(trainers, find(name)(trainers), strict=True):
        assert set(one.curve.nodes) <= set(result.nodes)
        assert all(0 <= value < math.inf for value in result.values)


NOISY = Facts(STEEP, 1, 8, weight=2.0, noise=7.0)
STILL = Facts(ThroughputCurve((0, 4), (0.0, 0.0)), 1, 4)


@cases(
    "name, one, values",
    throughput_is_samples_a_second=("throughput", ONE, {4: 800}),
    speedup_counts_nodes_at_the_rate_of_the_least_size=("speedup", Facts(STEEP, 2, 8), {8: 8}),
    it_is_nothing_without_progress=("speedup", STILL, {0: 0, 4: 0}),
    four_nodes_are_four_also_for_who_could_do_with_one=("speedup", PLAIN, {4: 4}),
    and_for_who_could_not=("speedup", Facts(STEEP, 4, 8), {4: 4}),
    efficiency_is_speedup_where_scaling_is_perfect=(
        *("efficiency", Facts(STEEP, 2, 8), {2: 2, 4: 4, 8: 8}),
    ),
    goodput_is_throughput_times_what_a_sample_counts=(
        *("goodput", NOISY, {1: 2 * 100, 4: 2 * 400 * 8 / 11, 8: 2 * 800 * 8 / 15}),
    ),
    it_is_throughput_where_more_nodes_make_no_larger_batch=("goodput", ONE, {4: 800, 8: 1600}),
    and_as_many_as_on_one_node_where_the_gradient_has_no_noise=(
        *("goodput", replace(PLAIN, noise=0.0), {1: 100, 4: 100}),
    ),
    weight_multiplies_speedup_too=("speedup", ONE, {4: 2 * 4}),
    and_efficiency=("efficiency+finish", ONE, {4: 2 * 4}),
    what_is_nearly_done_counts_more=("speedup+finish", replace(PLAIN, done=0.5), {1: 2}),
    the_more_the_nearer=("speedup+finish", replace(PLAIN, done=0.7), {1: 1 / 0.3}),
    up_to_four_times=("speedup+finish", replace(PLAIN, done=1.0), {1: 4}),
    what_has_just_begun_counts_as_usual=("speedup+finish", replace(PLAIN, done=0.0), {1: 1}),
    as_does_what_has_no_end=(" speedup + finish ", PLAIN, {1: 1}),
)
def test_what_a_trainers_nodes_are_worth(name: str, one: Facts, values: dict[int, float]) -> None:
    assert {size: curve(name, one).at(size) for size in values} == pytest.approx(values)


@pytest.mark.parametrize("metric", ["speedup", "efficiency", "speedup+fairness"])
def test_four_gpus_count_as_much_whatever_the_size_of_a_trainers_parts(metric: str) -> None:
    ones = Facts(STEEP, 1, 4, share=1 / 8, user="a")
    four = Facts(STEEP, 1, 1, share=4 / 8, user="b")
    small, large = find(metric)([ones, four])
    assert small.at(4) == pytest.approx(large.at(1))


def test_efficiency_is_greatest_where_half_of_the_nodes_is_lost() -> None:
    result = curve("efficiency", Facts(amdahl(1 / 16), 1, 64))  # Amdahl: 1/2 on 17 nodes
    assert max(result.nodes, key=result.at) == 16


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_nodes": 0}, "min_nodes"),
        ({"weight": math.nan}, "weight"),
        ({"waited_s": math.nan}, "waited_s"),
        ({"done": 1.1}, "share that is done"),
        ({"curve": ThroughputCurve((0, 1), (0.0, math.inf))}, "finite"),
    ],
)
def test_facts_are_held_to_what_they_mean(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PLAIN, **changes)


# A site's own.

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a site's package with one entry point."""

    def do(value: str, package: str = "site_package") -> None:
        metadata = tmp_path / f"{package}-1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Name: {package}\nVersion: 1\n")
        (metadata / "entry_points.txt").write_text(f"[bftrainer.objectives]\nours = {value}\n")
        (tmp_path / f"{package}.py").write_text(
            "from bftrainer_slurm.model import ThroughputCurve\n"
            "number = 3\n"
            "def objective(trainers):\n"
            "    return [ThroughputCurve((0, 1), (0.0, 7.0)) for _ in trainers]\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, package, raising=False)

    return do


def test_a_site_adds_its_own(install: Install) -> None:
    install("site_package:objective")
    assert find("ours+finish")([ONE])[0].values == (0.0, 7.0)
    assert {"ours", *METRICS} <= set(known())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "unknown objective ''; there are efficiency, goodput, speedup, throughput"),
        ("speed", "unknown objective 'speed'; there are"),
        ("fairness", "write for example speedup+fairness"),
        ("speedup+", "after a metric come, each at most once: fairness, finish"),
        ("speedup+throughput", "after a metric come"),
        ("speedup+finish+finish", "each at most once"),
    ],
)
def test_other_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(ObjectiveError, match=re.escape(message)):
        find(name)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["site_package:absent"], "cannot load site_package:absent"),
        (["no_such_module:objective"], "cannot load no_such_module:objective"),
        (["site_package:number"], "is not a function"),
        (["site_package:objective", "other_package:objective"], "not unique"),
    ],
)
def test_a_sites_own_that_cannot_be_loaded_is_refused(
    install: Install, values: list[str], message: str
) -> None:
    for value, package in zip(values, ("site_package", "other_package"), strict=False):
        install(value, package)
    with pytest.raises(ObjectiveError, match=message):
        find("ours")


def point(nodes: float, value: float) -> list[ThroughputCurve]:
    return [ThroughputCurve((0, nodes), (0.0, value))]


HUGE = ThroughputCurve(tuple(range(5000)), tuple(map(float, range(5000))))
NONSENSE: dict[str, tuple[Callable[[Sequence[Facts]], Any], str]] = {
    "raises": (lambda _: 1 / 0, "ZeroDivisionError"),
    "nothing": (lambda _: None, "no list of 1 curves"),
    "too many": (lambda _: [STEEP, STEEP], "no list of 1 curves"),
    "no curve": (lambda _: [3.0], "is a float"),
    "NaN": (lambda _: point(1, math.nan), "not between"),
    "infinite": (lambda _: point(1, math.inf), "not between"),
    "negative": (lambda _: point(1, -1.0), "ValueError"),
    "beyond all bounds": (lambda _: point(1, 1e300), "not between"),
    "fractions of nodes": (lambda _: point(0.5, 1.0), "no integer"),
    "huge": (lambda _: [HUGE], "more than 1000 points"),
}


@pytest.mark.parametrize(("objective", "reason"), NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_planned_by_throughput(
    objective: Callable[[Sequence[Facts]], Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert curves_of(find("speedup"), [ONE]) == find("speedup")([ONE])  # sense is taken as it is
    assert not caplog.text
    assert curves_of(objective, [ONE]) == find("throughput")([ONE])
    assert reason in caplog.text
