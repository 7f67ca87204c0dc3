"""What of the published status is shown to whom."""

from __future__ import annotations

import json

import pytest

from bftrainer_slurm.keeper.disclosure import disclosed, shown

MINE, OTHERS = 7, 8
PUBLIC = {"array", "name", "gpus"}


@pytest.mark.parametrize(
    ("private", "others"), [(False, {OTHERS: PUBLIC | {"hidden"}}), (True, {})]
)
def test_of_others_trainers_users_see_what_squeue_shows_or_nothing_where_jobs_are_private(
    private: bool, others: dict[int, set[str]]
) -> None:
    of = {"name": "digits", "gpus": 2, "samples": 5.0}
    trainers = [of | {"array": array} for array in (MINE, OTHERS)]
    status = json.dumps({"trainers": trainers, "jobs_private": private}).encode()
    found = json.loads(disclosed(status, lambda array: array == MINE))["trainers"]
    assert {one["array"]: set(one) for one in found} == {MINE: PUBLIC | {"samples"}, **others}
    own = shown(trainers[0], own=True, private=private)
    assert own == trainers[0], "the reader and the page have the same rule"


@pytest.mark.parametrize("status", [b"[" * 10_000, b"[1]"])
def test_what_is_no_status_shows_nothing(status: bytes) -> None:
    assert disclosed(status, lambda array: True) == b""
