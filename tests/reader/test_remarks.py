"""Notes on trainers: what is remarkable, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bftrainer_slurm.keeper.disclosure import shown
from bftrainer_slurm.reader.remarks import remarks
from tests.approved import approve_each
from tests.cli.documents import SHOWN, TERMS

SPENT = {"trained_s": 3300.0, "rescaling_s": 100.0, "lost_s": 200.0, "with_nodes_s": 3600.0}
HEALTHY = SHOWN | {
    "min_nodes": 2,
    "max_nodes": 8,
    "nodes": ["n1", "n2", "n3"],
    "reclaimed": 0,
    "goodput": SPENT,
}

HALF_LOST, HALF_RESCALING = (
    {"goodput": SPENT | {part: 1800.0}} for part in ("lost_s", "rescaling_s")
)
YOUNG = {"trained_s": 0.0, "rescaling_s": 0.0, "lost_s": 60.0, "with_nodes_s": 60.0}
UNUSABLE = TERMS | {"nodes": 0, "least": 4, "usable": 3}
REMARKABLE: dict[str, dict[str, Any]] = {
    "a failure": {"failures": 1},
    "failures in a row": {"failures": 3, "failed_on": ["n1"]},
    "given up": {"state": "given up", "why": "failed 5 times"},
    "a size that it does without": {"left_out": "3 nodes: boom"},
    "a notice": {"notice": "n1 has not joined: write 'srun torchrun'"},
    "it may have no more": {"why": "no licence"},
    "fewer usable nodes than its least": {"nodes": [], "plan": UNUSABLE},
    "at its most": {"max_nodes": 3},
    "no faster on more": {"plan": TERMS | {"limit": "no gain"}},
    "some reclaims": {"reclaimed": 3},
    "many reclaims": {"reclaimed": 30},
    "a slow rescale": {"rescale": {"up": {"seconds": 25.0, "count": 2}}},
    "reports that were refused": {"refused_reports": 2},
    "no samples": {"samples": None},
    "other ranks lose their place": {"loss": {"other_ranks": True}},
    "time lost": HALF_LOST,
    "time for rescaling": HALF_RESCALING,
    "several, the gravest first": {"failures": 4, "reclaimed": 1, "samples": None},
    # Where there is nothing to say:
    "all is well": {},
    "nobody has measured the rescale": {"rescale": {"up": {"seconds": 60.0, "count": 0}}},
    "it is young": {"goodput": YOUNG, "samples": None},
    "it is over": {"state": "finished", "max_nodes": 3, "why": "x", "notice": "y"},
}


def said(free: int = 0, **changes: Any) -> str:
    """Return a line for each remark: its level, what is said, and what to do."""
    found = remarks(HEALTHY | changes, free)
    return "\n".join(f"{one.level}: {one.text} {one.do}".strip() for one in found)


def test_what_is_remarkable_is_said_as_approved() -> None:
    shown = {what: said(**changes) for what, changes in REMARKABLE.items()}
    shown["at its most, and nodes are free"] = said(free=4, max_nodes=3)
    approve_each(Path(__file__).with_name("remarks.txt"), shown)


def test_of_others_trainers_no_more_is_said_than_everybody_may_know() -> None:
    secret = HEALTHY | {"failures": 4, "error": "x", "notice": "y", "why": "z", "samples": None}
    seen = shown(secret, own=False, private=False)
    assert seen is not None
    assert remarks(seen, 0) == []
