"""Lines of ours in a job's log. Standard library only."""

from __future__ import annotations

import contextlib
import os
import sys

# Of a node where nothing of the user's runs: it tells nobody how the script fares.
WAITS = "the script runs on another node; this one waits for a step that trains"


def say(text: str) -> None:
    """Write one line at once, so that a user sees who speaks: we may have no time left."""
    if sys.stderr is not None:  # else there is no log, and descriptor 2 may be a script's own file
        with contextlib.suppress(OSError):  # its disk may be full
            sys.stderr.flush()
            os.write(2, f"bftrainer: {text}\n".encode(errors="backslashreplace"))
