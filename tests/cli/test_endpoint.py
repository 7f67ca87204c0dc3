"""Which controller a command asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.cli import endpoint
from bftrainer_slurm.cli.endpoint import Endpoint
from bftrainer_slurm.controller.settings import Settings

WORKING: tuple[float, dict[str, Any]] = (2.0, {"controller": {"error": None}})
STOPPED: tuple[float, dict[str, Any]] = (2.0, {"controller": {"error": "stopped"}})
SILENT: tuple[float, dict[str, Any]] = (60.0, {"controller": {"error": None}})
ENDED = (STOPPED, SILENT, (0.0, None))


@pytest.mark.parametrize(
    ("published", "asked", "site", "keeper"),
    [
        (WORKING, Endpoint(), "site:2", "own:1"),
        *((ended, Endpoint(), "site:2", "site:2") for ended in ENDED),
        (STOPPED, Endpoint(), None, "own:1"),
        (STOPPED, Endpoint(address="other:3"), "site:2", "other:3"),
        (STOPPED, Endpoint(state=Path("/state")), "site:2", "own:1"),
    ],
)
def test_ones_own_controller_is_asked_before_the_sites_while_it_works_or_if_it_is_said(
    published: tuple[float, Any],
    asked: Endpoint,
    site: str | None,
    keeper: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint, "read_address", lambda _: "own:1")
    monkeypatch.setattr(endpoint, "site_keeper", lambda: site and Settings(listen=site))
    monkeypatch.setattr(Endpoint, "read_status", lambda _: published)
    assert asked.keeper() == keeper
