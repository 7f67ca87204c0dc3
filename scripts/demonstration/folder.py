"""The folder of a command's private cluster, and how such a command ends when something fails."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click


@contextmanager
def cluster_folder(prefix: str) -> Iterator[Path]:
    """Make a temporary folder that the cluster's users can enter; SIGTERM ends what runs in it.

    Raises:
        click.ClickException: a command failed, or took too long; in one line.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix=prefix, dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        try:
            yield Path(folder)
        except (subprocess.CalledProcessError, TimeoutError) as error:
            said = str(getattr(error, "stderr", None) or "").strip()
            raise click.ClickException(": ".join(filter(None, (str(error), said)))) from error
