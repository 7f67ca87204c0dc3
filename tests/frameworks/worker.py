"""A script as a worker of an element runs it, by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

_BEGIN = """
import os
from bftrainer_slurm.elastic import steps
from bftrainer_slurm.elastic.tasks import worker
steps.count()
worker.prepare(os.environ)
"""


def said(folder: Path, script: str, stream: str = "stdout", **environment: str) -> list[str]:
    """Run a script as a worker of an element runs it; return the lines of a stream of it."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + textwrap.dedent(script)],
        env=os.environ | {"BFTRAINER_ELEMENT": "7_1"} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return str(getattr(done, stream)).splitlines()
