"""Why a trainer has so many nodes, or waits, in words: see screens/explain.txt and reasons.txt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.cli.common import safe_lines
from bftrainer_slurm.cli.explain import as_document, lines
from bftrainer_slurm.planner.limit import Limit
from bftrainer_slurm.reader.sentences import reasons
from tests.approved import approve_changes, approve_each
from tests.cli.documents import DOCUMENT, ON_TIME, SHOWN, TERMS

pytestmark = pytest.mark.usefixtures("utc")
SCREENS = Path(__file__).parent / "screens"
TRAINER = SHOWN | {
    "nodes": ["n1", "n2", "n3"],
    "starting": [],
    "max_nodes": 8,
    **dict.fromkeys(("deadline", "by_s", "wanted_samples")),
}
STATUS = DOCUMENT | {
    "pool": {"nodes": 8, "used": 8, "starting": 0, "planned": 8, "free": [], "gpus": None},
    "left_alone": {"reserved": 2, "kept for ordinary jobs": 0},
}
GPUS = {"left": 20, "used": 6, "starting": 2, "planned": 12}
PARTS: dict[str, Any] = TRAINER | {"gpus": 2, "plan": TERMS | {"gpus": 2}}
SHARED = STATUS | {
    "pool": STATUS["pool"] | {"used": 6, "starting": 1, "gpus": GPUS},
    "trainers": [PARTS, TRAINER],
}

NEXT = {"limit": "pool", "usable": 3, "nodes": 2, "sizes": [{"nodes": 2}, {"nodes": 4}]}
TERMS_OF: dict[str, dict[str, Any]] = {
    "others lose more": {},
    "others lose more, it gets none, and one is free": {"nodes": 0, "free": 1},
    "as many as it may have": {"limit": "most", "most": 3},
    "as many as it can use": {"limit": "pool", "usable": 3},
    "more than it can use": NEXT,
    "fewer than its least": {"limit": "pool", "nodes": 0, "least": 4, "usable": 3},
    "no faster": {"limit": "no gain"},
    "more costs than gain": {"limit": "cost", "gain": -4.0},
    "no other one alone has so many": {"loss": None},
    "not proven": {"limit": "unproven"},
    "nodes of another kind": {"usable": 5},
}
BAR = {"why": "reserved", "nodes": 7, "some": ["n1", "n2"], "for_s": None}
OWN = {"why": "Slurm refuses it", "nodes": 1, "some": ["n3"], "for_s": 40.0}
STOPPED = STATUS | {"stopped_pass": {"tried": 500, "left": 253}}
DOWN = STATUS | {"down": "the controller is down", "pool": None}
NOISE = {"samples": 4000.0, "node_batch": 500.0, "given": True}
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    **{
        what: (changes, STATUS)
        for what, changes in {
            "given up": {"state": "given up", "why": "failed 3 times"},
            "finished": {"state": "finished"},
            "held by an operator": {"state": "withheld"},
            "it may have no more": {"why": "it asks for licences"},
            "one is starting": {"starting": ["n4"]},
            "on its way": {"nodes": ["n1"]},
            "in no plan": {"plan": None},
            "another user's": {"plan": None, "hidden": True},
            "a size left out": {"left_out": "3 nodes: boom"},
            "sizes left out, in no plan": {"left_out": "1-3 nodes: boom", "plan": None},
            "sizes of its own": {"sizes": [2, 4, 8]},
            "steps of its own": {"step": 4, "min_nodes": 4},
            "it begins at step 0": {"loss": {"from_start": True, "seconds": 734.0}},
            "it goes on from a checkpoint": {"loss": {"from_start": False, "seconds": 52.0}},
            "a deadline without room": {
                "deadline": ON_TIME | {"nodes": 5, "nodes_left": 0},
                "wanted_samples": 2e6,
                "by_s": 1_796_112_000.0,
                "samples_per_s": 1_234.5,
            },
            "it would lose nothing": {"loss": {"from_start": True, "seconds": 0.4}},
        }.items()
    },
    "nodes barred to it, and to all": ({"barred": [OWN]}, STATUS | {"barred": [BAR]}),
    "a noise scale, where plans do not go by goodput": ({"noise": NOISE}, STATUS),
    "behind a deep queue, without a node": ({"nodes": []}, STOPPED),
    "behind a deep queue, starting": ({"starting": ["n4"]}, STOPPED),
    "behind a deep queue, with its nodes": ({}, STOPPED),
    "nobody plans": ({"plan": None}, DOWN),
    "whole nodes, where others have parts": ({"plan": TERMS | {"usable": 5}}, SHARED),
}
GOODPUT: dict[str, dict[str, Any]] = {
    "goodput, by a given noise scale": NOISE,
    "goodput, by a measured one, with a batch that does not grow": NOISE
    | {"node_batch": 0.0, "given": False},
    "goodput, of which nothing is known": {},
}
BY_GOODPUT = STATUS | {"controller": {"objective": "goodput+finish"}}


def test_reasons_are_told_as_approved() -> None:
    told = {
        **{what: (TRAINER | {"plan": TERMS | terms}, STATUS) for what, terms in TERMS_OF.items()},
        **{
            f"{what} of GPUs": (TRAINER | {"plan": TERMS | terms | {"gpus": 2}}, STATUS)
            for what, terms in TERMS_OF.items()
        },
        **{what: (TRAINER | one, status) for what, (one, status) in CHANGES.items()},
        **{what: (TRAINER | {"noise": one or None}, BY_GOODPUT) for what, one in GOODPUT.items()},
    }
    shown = {what: "\n".join(reasons(*one)) for what, one in told.items()}
    approve_changes(SCREENS / "reasons.txt", shown)


def test_reasons_and_sizes_are_printed_as_approved() -> None:
    told = {
        "whole nodes": (TRAINER, STATUS),
        "parts of nodes": (PARTS, SHARED),
        "hostile texts": (TRAINER | {"name": "\x1b[2Jevil", "why": "\x1b]0;mine\x07"}, STATUS),
    }
    shown = {what: "\n".join(lines(*one, now_s=1007.4)) for what, one in told.items()}
    approve_each(SCREENS / "explain.txt", {what: safe_lines(one) for what, one in shown.items()})


def test_there_is_a_sentence_for_each_limit() -> None:
    told = (reasons(TRAINER | {"plan": TERMS | {"limit": one.value}}, STATUS) for one in Limit)
    assert len({*map(tuple, told)}) == len(Limit)


def test_json_has_the_terms_and_the_sentences() -> None:
    found = as_document(TRAINER, STATUS)
    assert (found["plan"], found["reasons"]) == (TERMS, reasons(TRAINER, STATUS))
