"""What of the published status is shown to whom."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bftrainer_slurm.keeper.disclosure import disclosed, shown

MINE, OTHERS = 7, 8


def seen(*, private: bool) -> dict[int, dict[str, Any]]:
    """The trainers that the owner of one of them sees."""
    of = {"name": "digits", "gpus": 2, "samples": 5.0}
    trainers = [of | {"array": array} for array in (MINE, OTHERS)]
    status = json.dumps({"trainers": trainers, "jobs_private": private}).encode()
    found = json.loads(disclosed(status, lambda array: array == MINE))
    return {one["array"]: one for one in found["trainers"]}


def test_of_others_trainers_users_see_what_squeue_shows() -> None:
    shown = seen(private=False)
    assert shown[MINE]["samples"] == 5.0
    assert shown[OTHERS] == {"array": OTHERS, "name": "digits", "gpus": 2, "hidden": True}


def test_where_jobs_are_private_they_hear_of_their_own_only() -> None:
    assert seen(private=True).keys() == {MINE}


def test_what_is_no_status_shows_nothing() -> None:
    assert disclosed(b"[" * 10_000, lambda array: True) == b""
    assert disclosed(b"[1]", lambda array: True) == b""


@pytest.mark.parametrize(
    ("own", "private", "keys"),
    [
        (True, False, {"array", "samples"}),
        (True, True, {"array", "samples"}),
        (False, False, {"array", "hidden"}),
        (False, True, set()),
    ],
)
def test_one_rule_says_what_is_shown_of_a_trainer(own: bool, private: bool, keys: set[str]) -> None:
    assert (shown({"array": 1, "samples": 5.0}, own=own, private=private) or {}).keys() == keys
