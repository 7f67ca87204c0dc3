"""The project's tools as people call them: ``scripts/run NAME OPTION...``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.labcluster.stage import REPO


def tool(name: str, *options: object) -> list[str]:
    """Return the command that runs a tool; without a name it says which there are."""
    named = [name] if name else []
    return [sys.executable, str(REPO / "scripts" / "run"), *named, *map(str, options)]


def program(folder: Path, name: str, does: str) -> Path:
    """Write a shell script that stands in for another program, and return it."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)
    return path


def run_tool(name: str, *options: object, **others: Any) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end; ``others`` are subprocess.run's."""
    return subprocess.run(tool(name, *options), capture_output=True, text=True, **others)
