"""Holds the grammar to its table, tests/data/spec_cases.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.spec import (
    MAX_COMMENT,
    Request,
    Spec,
    SpecError,
    TrainerRecord,
    format_comment,
    own_comment,
    parse_comment,
    parse_spec,
    with_own_comment,
)

ROOT = Path(__file__).parent.parent
CASES = json.loads((ROOT / "tests/data/spec_cases.json").read_text())
Case = dict[str, Any]


def name(case: Case) -> str:
    return ascii(case["text"])[:60]


def spec_of(case: Case) -> Spec:
    optional = map(case.get, ("node_hours", "samples", "by_s", "noise"))
    return Spec(case["weight"], case["grace_s"], *optional)


@pytest.mark.parametrize("case", CASES["specs"], ids=name)
def test_a_spec_is_read_as_the_table_says(case: Case) -> None:
    max_grace_s = float(case.get("max_grace", "30"))
    if "error" in case:
        with pytest.raises(SpecError) as refused:
            parse_spec(case["text"], max_grace_s, 1e9)
        assert str(refused.value) == case["error"]
        return
    names = ("min_nodes", "step", "own_rendezvous", "no_resume", "batch")
    request = Request(
        spec_of(case),
        sizes=tuple(case.get("sizes", ())),
        **{name: case[name] for name in names if name in case},
    )
    assert parse_spec(case["text"], max_grace_s, 1e9) == request


@pytest.mark.parametrize("case", CASES["comments"], ids=name)
def test_a_comment_is_read_as_the_table_says(case: Case) -> None:
    if "error" in case:
        with pytest.raises(SpecError) as refused:
            parse_comment(case["text"])
        assert str(refused.value) == case["error"]
        return
    names = ("min_nodes", "max_nodes", "minutes", "personal", "nodes", "step", "task", "id")
    record = TrainerRecord(
        spec=spec_of(case),
        partitions=tuple(case.get("partitions", ())),
        sizes=tuple(case.get("sizes", ())),
        **{name: case[name] for name in names if name in case},
    )
    assert parse_comment(case["text"]) == record
    assert format_comment(record) == case["canonical"]


def test_no_value_means_the_defaults() -> None:
    assert parse_spec(None) == Request()


@pytest.mark.parametrize(
    ("comment", "own"),
    [
        ("mine", "mine"),
        ("bftrainer:min=1,max=2", ""),
        ("bftrainer:min=1,max=2 my own", "my own"),
        ("bftrainer:rubbish  two spaces", " two spaces"),
        ("audited;bftrainer:min=1,max=3 mine", "audited; mine"),
    ],
)
def test_what_stands_behind_the_record_is_the_users(comment: str, own: str) -> None:
    assert own_comment(comment) == own
    assert own_comment(with_own_comment("bftrainer:min=1,max=2", own)) == own


def test_of_a_long_comment_as_much_is_kept_as_fits() -> None:
    record = "bftrainer:min=1,max=2"
    assert len(with_own_comment(record, "x" * 2000)) == MAX_COMMENT
    assert len(with_own_comment(record, "\u00fc" * 2000).encode()) in (MAX_COMMENT, MAX_COMMENT - 1)
    full = record.ljust(MAX_COMMENT, "x")
    assert with_own_comment(full, "mine") == full
