"""Objectives by name, a site's own among them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bftrainer_slurm.planner.objectives import Facts, ObjectiveError, find, known
from tests.planner.objectives.made import STEEP

Install = Callable[..., None]
ONE = Facts(STEEP, 1, 8, weight=2.0)


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


def test_ours_are_known() -> None:
    assert {"throughput", "speedup", "efficiency", "goodput"} <= set(known())


def test_modifiers_are_joined_with_a_plus() -> None:
    one = Facts(STEEP, 1, 8, done=0.5)
    assert find("speedup+finish")([one])[0].at(1) == 2 * find("speedup")([one])[0].at(1)


def test_blanks_around_a_plus_do_not_matter() -> None:
    assert find(" speedup + finish ")([ONE]) == find("speedup+finish")([ONE])


def test_a_site_adds_its_own(install: Install) -> None:
    install("site_package:objective")
    assert find("ours+finish")([ONE])[0].values == (0.0, 7.0)
    assert "ours" in known()


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
    ("value", "message"),
    [
        ("site_package:absent", "cannot load site_package:absent"),
        ("no_such_module:objective", "cannot load no_such_module:objective"),
        ("site_package:number", "is not a function"),
    ],
)
def test_a_sites_own_that_cannot_be_loaded_is_refused(
    install: Install, value: str, message: str
) -> None:
    install(value)
    with pytest.raises(ObjectiveError, match=message):
        find("ours")


def test_a_name_that_two_packages_have_is_refused(install: Install) -> None:
    install("site_package:objective")
    install("other_package:objective", package="other_package")
    with pytest.raises(ObjectiveError, match="not unique"):
        find("ours")
