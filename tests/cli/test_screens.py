"""What people read of a status and of a trainer: see screens/status.txt and screens/show.txt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.cli.common import safe_lines
from bftrainer_slurm.cli.show import lines as trainer_lines
from bftrainer_slurm.cli.status import entry_from_slurm, status_lines
from bftrainer_slurm.controller.publish.status import APART
from bftrainer_slurm.controller.state.trainer_state import BATCH_SCRIPT
from tests.approved import approve_changes
from tests.cli.documents import DOCUMENT, ON_TIME, SHOWN, TRAINER
from tests.controller.worlds import trainer

pytestmark = pytest.mark.usefixtures("utc")
SCREENS = Path(__file__).parent / "screens"
FAILED = {
    "notice": "failed 3 times in a row on n1",
    "error": "Traceback\nModuleNotFoundError: No module named 'einops'",
}
LEFT_OUT = {"left_out": "3 nodes, where its script fails: AssertionError: not on 3 nodes"}
FELT = {"started": 2412, "jobs": 3, "late_jobs": 1, "delay_median_s": 0.0, "delay_max_s": 31.0}
DEADLINES = {
    "late": {"state": "late", "late_s": 10_800.0},
    "cannot be met": {"state": "cannot be met", "late_s": 10_800.0},
    "not known": {"state": "not known"},
    "passed": {"state": "passed"},
    "done": {"state": "done"},
    "little room for it": {"nodes": 5, "nodes_left": 3},
    "no room for it": {"nodes": 5, "nodes_left": 0},
    "late, and little room for it": {"state": "late", "nodes": 5, "nodes_left": 3},
    "not known, and no room for it": {"state": "not known", "nodes": 5, "nodes_left": 0},
}
LATE: dict[str, dict[str, Any]] = {
    f"a deadline: {what}": {"deadline": ON_TIME | about} for what, about in DEADLINES.items()
}
OLDER = {"deadline": {"state": "late", "needs": 1_200.0, "late_s": 60.0}}
FIVE = ", ".join(f"gpu-node-{number:04}" for number in range(5))
LONG_NOTICE = {
    "notice": APART.format(nodes=f"{FIVE}, and 9 more", together="do not train together", array=7)
}
HOSTILE = "\x1b[2Jevil\n12 forged \u202e"


def text(lines: Iterable[str]) -> str:
    """Return lines as they reach a terminal."""
    return safe_lines("\n".join(lines))


def of(*changes: dict[str, Any]) -> dict[str, Any]:
    """Return what changes in a status where these are changes of its trainers."""
    return {"trainers": [TRAINER | one for one in changes]}


STATUS: dict[str, dict[str, Any]] = {
    "a trainer is a line": {},
    "parts of nodes are told in GPUs": of({"gpus": 2}, {"gpus": 0}),
    "what a user should know, and why it waits": of(
        {"notice": "n2, n3 run, but none has joined"}, {"why": "it failed"}
    ),
    "sizes that it does without": of(LEFT_OUT),
    **{what: {"trainers": [SHOWN | changes]} for what, changes in LATE.items()},
    "a deadline of GPUs without room": {
        "trainers": [SHOWN | LATE["a deadline: no room for it"] | {"gpus": 2}]
    },
    "a deadline as an older controller published it": {"trainers": [SHOWN | OLDER]},
    "a notice of five long names, none of them cut short": of(LONG_NOTICE),
    "many trainers in trouble": of(*[{"why": "it failed"}] * 8),
    "what ordinary jobs felt": {"preempted": FELT},
    "that they felt nothing": {"preempted": {"jobs": 0}},
    "idle nodes that no trainer may have": {"left_alone": {"reserved": 2, "failed there": 1}},
    "a failure, and what to do about it": of(FAILED),
    "the controller's trouble": {"controller": {"error": "no answer"}},
    "its history's": {"controller": {"error": None, "history": "disk full"}},
    "what the keeper refused": {"keeper": {"refused": {"not_owner": 2, "bad_proof": 1}}},
    "no trainer": {"trainers": []},
    "nodes whose elements never say that they are up": {"mute_nodes": ["n9"]},
    "jobs that are no trainers": {"malformed": {str(job): "no record" for job in range(7, 14)}},
    "the controller is down": {"down": "the controller is down", "pool": None},
    "hostile texts": of({"name": HOSTILE, "state": "\x1b]0;mine\x07", "notice": HOSTILE}),
}


def test_a_status_is_printed_as_approved() -> None:
    printed = {what: text(status_lines(DOCUMENT | one)) for what, one in STATUS.items()}
    approve_changes(SCREENS / "status.txt", printed)


def spent(*seconds: float | None) -> dict[str, Any]:
    names = ("trained_s", "waiting_s", "rescaling_s", "lost_s", "with_nodes_s", "again_s")
    return {"goodput": dict(zip(names, seconds, strict=True))}


def curve(unit: str | None, measured: bool = True) -> dict[str, Any]:
    points = [{"nodes": nodes, "rate": 1.0 * nodes, "measured": measured} for nodes in (1, 2)]
    return {"curve": {"unit": unit, "points": points}}


def known(**changes: Any) -> dict[str, Any]:
    """Return a trainer as Slurm alone knows it."""
    one = trainer()
    return entry_from_slurm(replace(one, record=replace(one.record, **changes)))


OUTPUT = {"path": "/home/alice/12_0.out", "lines": ["starting", "venv/activate: no such file"]}
LONG_ERROR = "\n".join(f"line {number}" for number in range(50)) + "\n\x1b[2Jboom \u202e"
SHOW: dict[str, dict[str, Any]] = {
    "all that is known of a trainer": SHOWN,
    "parts of nodes": SHOWN | {"gpus": 2},
    "a notice of five long names, none of them cut short": SHOWN | LONG_NOTICE,
    "a notice": SHOWN | {"notice": "n2, n3 run, but none has joined"},
    "sizes that it does without": SHOWN | LEFT_OUT,
    **{what: SHOWN | changes for what, changes in LATE.items()},
    "one switch": SHOWN | {"switches": 1},
    "two switches": SHOWN | {"switches": 2},
    "no switch": SHOWN | {"switches": 0},
    "the link to the page": SHOWN | {"page": "http://127.0.0.1:6741/#trainer=12&key=alice.5f0c"},
    "a curve without samples is relative": SHOWN | curve("steps"),
    "a curve of which nothing was measured is not shown": SHOWN | curve(None, measured=False),
    "trouble comes first, with what to do": SHOWN | FAILED,
    "the last lines of a failure": SHOWN
    | {"state": "given up", "why": "failed 3 times\x07", "error": LONG_ERROR},
    "the end of a failed batch script's output": SHOWN | {"error": BATCH_SCRIPT, "output": OUTPUT},
    "what a member has told says more than the output": SHOWN
    | {"error": "ImportError: no toch", "output": OUTPUT},
    "where its time went": SHOWN | spent(3600.0, 59.94, 12.3, 387.7, 4000.0, 240.0),
    "where it went, of a trainer that reports nothing": SHOWN
    | spent(None, 30.0, None, None, 7325.0, None),
    "where it went, of a trainer without a node yet": SHOWN | spent(0.0, 30.0, 0.0, 0.0, 0.0, 0.0),
    "steps of an unknown number of samples": SHOWN | {"samples": None, "steps": 120_000},
    "its noise scale": SHOWN | {"noise": {"samples": 4000.0, "node_batch": 500.0, "given": True}},
    "failures in a row, and reports refused": SHOWN
    | {"failures": 3, "failed_on": ["n1"], "refused_reports": 2},
    "what Slurm alone knows": known(),
    "a folder for output that is not there": known()
    | {"output": {"path": "/nowhere/logs/7.out", "lines": ()}},
    "a time limit, and an end": known(minutes=90) | {"node_hours": 100.0},
    "nodes that it may have alone": known(partitions=("gpu", "long"), nodes="n[1-3]"),
    "another user's": known() | {"hidden": True},
    "hostile texts": SHOWN | {"name": HOSTILE, "launcher": HOSTILE, "why": HOSTILE},
}


def test_a_trainer_is_printed_as_approved() -> None:
    approve_changes(
        SCREENS / "show.txt", {what: text(trainer_lines(one)) for what, one in SHOW.items()}
    )
