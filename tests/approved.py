"""Printed text, in files that somebody has read: what people see now is held against them.

``APPROVE=1 pytest FILE`` writes them anew. Read what has changed before it is committed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path

from click.testing import CliRunner

from bftrainer_slurm.cli import main


def approve(path: Path, shown: str) -> None:
    """Hold what is shown against the text of a file.

    Raises:
        AssertionError: it is another one; the message has the lines that differ.
    """
    if os.environ.get("APPROVE"):
        path.write_text(shown)
    lines = path.read_text().splitlines(), shown.splitlines()
    differs = "\n".join(unified_diff(*lines, path.name, "what is shown now", lineterm=""))
    assert not differs, f"{differs}\nIf that is right: APPROVE=1 pytest writes {path} anew."


def approve_each(path: Path, shown: Mapping[str, str]) -> None:
    """Hold several texts against a file, in which each stands below what it shows."""
    approve(path, "\n".join(f"== {what}\n{text.rstrip()}\n" for what, text in shown.items()))


def approve_changes(path: Path, shown: Mapping[str, str]) -> None:
    """Do the same; of all texts but the first one only what differs from that one stands there."""
    first, *_ = shown.values()
    told = {what: text if text is first else _changes(first, text) for what, text in shown.items()}
    approve_each(path, told)


def _changes(before: str, now: str) -> str:
    lines = unified_diff(before.splitlines(), now.splitlines(), n=0, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("@@", "---", "+++")))


def approve_commands(path: Path, **stand_for: str) -> None:
    """Run the commands of a file (``$ bftrainer ...``); hold what each prints against it.

    A line [2] is the exit code, if it is not 0; a line that begins with "# " is a remark. In a
    command the words of ``stand_for`` stand for texts that cannot be written there.
    """
    told = []
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            told += [line, ""]
        elif line.startswith("$ bftrainer"):
            words = shlex.split(line)[2:]
            for name, text in stand_for.items():
                words = [word.replace(name, text) for word in words]
            done = CliRunner().invoke(main, words, prog_name="bftrainer")
            code = [f"[{done.exit_code}]"] if done.exit_code else []
            told += [line, *done.output.splitlines(), *code, ""]
    approve(path, "\n".join(told))
