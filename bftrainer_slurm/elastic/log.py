"""Lines of ours in a job's log. Standard library only."""

from __future__ import annotations

import sys

# Of a node where nothing of the user's runs: it tells nobody how the script fares.
WAITS = "the script runs on another node; this one waits for a step that trains"


def say(text: str) -> None:
    """Write one line into the job's log, so that a user sees who speaks."""
    print(f"bftrainer: {text}", file=sys.stderr, flush=True)
