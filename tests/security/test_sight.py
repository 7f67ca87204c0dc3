"""What users see of each other's trainers: what squeue shows, and no more."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scripts.labcluster.site import Site
from tests.security.conftest import Victim

pytestmark = [pytest.mark.slurm, pytest.mark.once, pytest.mark.timeout(1500)]

PRIVATE = {"samples", "steps", "measures", "error", "curve", "rescale", "why", "notice"}


def seen_by(site: Site, user: str, array: int) -> dict[str, Any]:
    listed = site.run("bftrainer", "status", "--json", user=user).stdout
    (found,) = [one for one in json.loads(listed)["trainers"] if one["array"] == array]
    return dict(found)


def test_how_a_trainer_does_is_for_its_owner_and_operators(site: Site, victim: Victim) -> None:
    for user in ("alice", "root", "slurm"):
        assert set(seen_by(site, user, victim.array)) >= PRIVATE
    for user in ("bob", "carol"):
        seen = seen_by(site, user, victim.array)
        assert not set(seen) & PRIVATE
        assert seen["nodes"] == victim.nodes
