"""Lines of ours in a job's log. Standard library only."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Write one line into the job's log, so that a user sees who speaks."""
    print(f"bftrainer: {text}", file=sys.stderr, flush=True)
