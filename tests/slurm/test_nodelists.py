from __future__ import annotations

import pytest

from bftrainer_slurm.model import NodeState
from bftrainer_slurm.slurm.nodelists import (
    barred_in,
    barred_list,
    excluded_in,
    expand,
    fold,
    node_state,
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("n[1-3,7]", ("n1", "n2", "n3", "n7")),
        ("n[008-010]", ("n008", "n009", "n010")),
        ("a1,b[1-2]", ("a1", "b1", "b2")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("login-a.example", ("login-a.example",)),
        ("r1n[09-11],r2n5", ("r1n09", "r1n10", "r1n11", "r2n5")),
        ("n[1-2]-ib", ("n1-ib", "n2-ib")),
        ("n2,n2,n[1,3]", ("n2", "n1", "n3")),
        ("", ()),
        ("(null)", ()),
        ("n/a", ()),
        (None, ()),
        ("n[1-", ()),
    ],
)
def test_expands_node_lists(text: str | None, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("n1",), "n1"),
        (("n3", "n1", "n2", "n7"), "n[1-3,7]"),
        (("n9", "n10", "n008", "n009"), "n9,n10,n[008-009]"),
        (("r1n1", "r1n2", "r2n1", "login"), "login,r1n[1-2],r2n1"),
        (("n1-ib", "n2-ib"), "n1-ib,n2-ib"),
    ],
)
def test_folds_names_into_node_lists(names: tuple[str, ...], text: str) -> None:
    assert fold(names) == text
    assert set(expand(text)) == set(names)


@pytest.mark.parametrize("excluded", [(), ("n1",), ("n2", "n3"), ("login", "n1", "n4")])
@pytest.mark.parametrize("others", [(), ("n1",), ("n1", "n2", "n3"), ("a", "n9", "login")])
def test_what_the_user_excluded_is_found_again_in_what_a_grow_excludes(
    excluded: tuple[str, ...], others: tuple[str, ...]
) -> None:
    text = barred_list(frozenset(excluded), frozenset(others))
    assert excluded_in(text) == set(excluded)
    assert barred_in(text) == {*excluded, *others}


def test_a_list_that_no_grow_has_written_is_the_users() -> None:
    assert excluded_in("n[1-3],n7") == {"n1", "n2", "n3", "n7"}
    assert excluded_in("(null)") == set()


STATES = {
    NodeState.IDLE: (
        *("idle", "IDLE", "planned", "idle-", "IDLE+PLANNED", "IDLE+CLOUD", "IDLE+DYNAMIC_NORM"),
    ),
    # With jobs, or Slurm wakes it for one.
    NodeState.BUSY: (
        *("allocated", "mixed", "completing", "mixed-", "ALLOCATED", "IDLE+COMPLETING"),
        *("MIXED+PLANNED", "allocated~", "allocated#", "mixed#", "ALLOCATED+POWERED_DOWN"),
        "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP",
    ),
    # Busy, and an admin waits for it, or it is to be switched off.
    NodeState.DRAINING: (
        *("draining", "draining@", "allocated@", "mixed@", "MIXED+DRAIN", "ALLOCATED+DRAIN"),
        *("MIXED+REBOOT_REQUESTED", "MIXED+DRAIN+REBOOT_REQUESTED", "COMPLETING+DRAIN"),
        *("allocated!", "MIXED+POWER_DOWN"),
    ),
    # Idle, and Slurm switches it off.
    NodeState.POWERED_DOWN: (
        *("idle~", "idle%", "idle!", "IDLE+POWERED_DOWN", "IDLE+CLOUD+POWERED_DOWN"),
        *("IDLE+POWERING_DOWN", "IDLE+POWER_DOWN", "IDLE+CLOUD+NOT_RESPONDING+POWERED_DOWN"),
        "IDLE+POWERED_DOWN+POWER_UP",
    ),
    NodeState.UNAVAILABLE: (
        *("idle*", "idle#", "idle@", "idle^", "idle$", "allocated*", "down", "down*", "drained"),
        *("draining*", "drained~", "drained@", "fail", "failing", "reserved", "maint", "reboot^"),
        *("inval", "unknown", "future", "blocked", "", "IDLE+DRAIN", "IDLE+RESERVED", "down~"),
        *("IDLE+MAINTENANCE", "IDLE+NOT_RESPONDING", "DOWN+DRAIN", "IDLE+DRAIN+POWERED_DOWN"),
        *("DOWN+POWERED_DOWN", "drained%", "DOWN+DRAIN+REBOOT_REQUESTED"),
        *("IDLE+CLOUD+POWERING_UP", "IDLE+REBOOT_REQUESTED"),
    ),
}


@pytest.mark.parametrize(
    ("text", "state"), [(text, state) for state, texts in STATES.items() for text in texts]
)
def test_slurms_words_for_a_node_say_what_it_is_for_trainers(text: str, state: NodeState) -> None:
    assert node_state(text) is state
