"""Folders for output that this host lacks: Slurm then starts no script, and does not say so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_FILES = ("output", "error")


def missing_folders(given: Mapping[str, str]) -> list[str]:
    """Return a warning for each folder that is not there."""
    files = {name: Path(given.get("chdir", "."), given[name]) for name in _FILES if name in given}
    folders = {name: file.absolute().parent for name, file in files.items()}
    return [
        f"--{name}: there is no folder {folder} on this host; without it no node can start the "
        "script: mkdir -p it"
        for name, folder in folders.items()
        if "%" not in str(folder) and not folder.exists()  # only Slurm knows what %j will be
    ]
