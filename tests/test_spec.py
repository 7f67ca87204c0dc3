"""Holds spec.py and the C parser of the plugin to one table, tests/data/spec_cases.json."""

from __future__ import annotations

import json
import subprocess
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


@pytest.fixture(scope="session", params=["spec_check", "spec_check_sanitized"])
def spec_check(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    target = "check" if request.param == "spec_check" else "sanitize"
    make = ["make", "-s", "-C", str(ROOT / "slurm_plugin"), f"BUILD={folder}", target]
    subprocess.run(make, check=True)
    return folder / str(request.param)


def ask(spec_check: Path, *arguments: str, text: str) -> Case:
    answer = subprocess.run(
        [spec_check, *arguments], input=text.encode(), capture_output=True, check=True
    )
    return dict(json.loads(answer.stdout))


@pytest.mark.parametrize("case", CASES["specs"], ids=name)
def test_python_reads_a_spec_as_the_table_says(case: Case) -> None:
    max_grace_s = float(case.get("max_grace", "30"))
    if "error" in case:
        with pytest.raises(SpecError) as refused:
            parse_spec(case["text"], max_grace_s)
        assert str(refused.value) == case["error"]
    else:
        assert parse_spec(case["text"], max_grace_s) == Request(
            Spec(case["weight"], case["grace_s"], case.get("node_hours")),
            min_nodes=case.get("min_nodes", 0),
            sizes=tuple(case.get("sizes", ())),
            step=case.get("step", 1),
            own_rendezvous=case.get("own_rendezvous", False),
            no_resume=case.get("no_resume", False),
            batch=case.get("batch", ""),
        )


def test_the_plugin_reads_a_spec_as_the_table_says(spec_check: Path) -> None:
    for case in CASES["specs"]:
        answer = ask(spec_check, "spec", case.get("max_grace", "30"), text=case["text"])
        wanted = {key: value for key, value in case.items() if key not in ("text", "max_grace")}
        if "error" not in case:
            flags = {"own_rendezvous": False, "no_resume": False, "batch": ""}
            wanted = {"step": 1, "min_nodes": 0} | flags | wanted
        assert answer == wanted, name(case)


@pytest.mark.parametrize("case", CASES["comments"], ids=name)
def test_python_reads_a_comment_as_the_table_says(case: Case) -> None:
    if "error" in case:
        with pytest.raises(SpecError) as refused:
            parse_comment(case["text"])
        assert str(refused.value) == case["error"]
        return
    record = parse_comment(case["text"])
    assert record == TrainerRecord(
        min_nodes=case["min_nodes"],
        max_nodes=case["max_nodes"],
        spec=Spec(case["weight"], case["grace_s"], case.get("node_hours")),
        minutes=case["minutes"],
        personal=case["personal"],
        partitions=tuple(case.get("partitions", ())),
        nodes=case.get("nodes", ""),
        sizes=tuple(case.get("sizes", ())),
        step=case.get("step", 1),
        task=case.get("task"),
        id=case["id"],
    )
    assert format_comment(record) == case["canonical"]


def test_the_plugin_reads_a_comment_as_the_table_says(spec_check: Path) -> None:
    for case in CASES["comments"]:
        answer = ask(spec_check, "record", text=case["text"])
        wanted = {key: value for key, value in case.items() if key != "text"}
        if "error" not in case:
            wanted |= {"text": wanted.pop("canonical"), "step": case.get("step", 1)}
            wanted["partitions"] = ":".join(case.get("partitions", ()))
            wanted["nodes"] = case.get("nodes", "").replace(",", ":")
        assert answer == wanted, name(case)


def test_no_value_means_the_defaults() -> None:
    assert parse_spec(None) == Request()


def test_the_plugin_survives_bytes_that_are_no_text(spec_check: Path) -> None:
    for noise in (bytes(range(1, 256)), b"\xff" * 256, b"weight=\x80\xc3", b"\0weight=2"):
        run = subprocess.run(
            [spec_check, "spec"], input=noise, capture_output=True, check=True, timeout=20
        )
        assert len(run.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("comment", "own"),
    [
        ("mine", "mine"),
        ("bftrainer:min=1,max=2", ""),
        ("bftrainer:min=1,max=2 my own", "my own"),
        ("bftrainer:rubbish  two spaces", " two spaces"),
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
