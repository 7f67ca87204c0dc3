"""A script as a worker of an element runs it, by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def said(folder: Path, script: str, stream: str = "stdout") -> list[str]:
    """Run a script as a worker of an element runs it; return the lines of a stream of it."""
    begin = (
        "import os; from bftrainer_slurm.elastic import resuming; resuming.install(os.environ)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(script)],
        env=os.environ | {"BFTRAINER_ELEMENT": "7_1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return str(getattr(done, stream)).splitlines()
