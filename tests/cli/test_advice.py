"""Last words of failing scripts, as they were seen, and what a beginner is told to do."""

from __future__ import annotations

import re
from pathlib import Path

from bftrainer_slurm.cli.advice import advice
from tests.approved import approve_each

FILE = Path(__file__).parent / "screens" / "advice.txt"


def test_what_beginners_meet_has_the_approved_remedy() -> None:
    """The words are headings of the file; of other failures nothing is made up."""
    words = re.findall("^== (.*)$", FILE.read_text(), re.MULTILINE)
    end = "srun: error: n1: task 0: Exited"
    approve_each(FILE, {one: advice(["it begins", one, end]) or "" for one in words})


def test_a_cause_counts_more_than_what_follows_from_it() -> None:
    words = ["process 0 terminated with signal SIGKILL", "CUDA out of memory"]
    assert (advice(words) or "").startswith("use a smaller batch")
