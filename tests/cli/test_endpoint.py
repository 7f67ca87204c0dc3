"""Which controller a command asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.cli import endpoint
from bftrainer_slurm.cli.endpoint import Endpoint, is_working
from bftrainer_slurm.controller.settings import Settings

WORKING: tuple[float, dict[str, Any]] = (2.0, {"controller": {"error": None}})
STOPPED: tuple[float, dict[str, Any]] = (2.0, {"controller": {"error": "stopped"}})
SILENT: tuple[float, dict[str, Any]] = (60.0, {"controller": {"error": None}})


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One's own keeper, at own:1, and the site's, at site:2; what the first one published last."""
    published: list[Any] = [WORKING]
    monkeypatch.setattr(endpoint, "read_address", lambda _: "own:1")
    monkeypatch.setattr(endpoint, "site_keeper", lambda: Settings(listen="site:2"))
    monkeypatch.setattr(Endpoint, "read_status", lambda _: published[0])
    return published


def test_ones_own_controller_is_asked_before_the_sites(own: list[Any]) -> None:
    assert Endpoint().keeper() == "own:1"


@pytest.mark.parametrize("last", [STOPPED, SILENT, (0.0, None)])
def test_ones_own_that_has_ended_does_not_hide_the_sites(own: list[Any], last: Any) -> None:
    own[0] = last
    assert Endpoint().keeper() == "site:2"


def test_what_is_said_counts_whether_it_works_or_not(own: list[Any]) -> None:
    own[0] = STOPPED
    assert Endpoint(address="other:3").keeper() == "other:3"
    assert Endpoint(state=Path("/state")).keeper() == "own:1"


def test_where_there_is_no_site_ones_own_is_asked_all_the_same(
    own: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    own[0] = STOPPED
    monkeypatch.setattr(endpoint, "site_keeper", lambda: None)
    assert Endpoint().keeper() == "own:1"


def test_a_controller_that_has_stopped_or_is_silent_does_not_work() -> None:
    assert [is_working(*one) for one in (WORKING, STOPPED, SILENT)] == [True, False, False]
