"""The results so far, in one file: what is in it need not be run again, after Ctrl-C say."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from bftrainer_slurm.replay.drive import Outcome
from scripts.experiments.runs import Result, Run


class StoreError(ValueError):
    """A file that holds no results; in one line, with the remedy."""


class Store:
    """Results by run; each one is on the disk before the next is begun."""

    def __init__(self, path: Path) -> None:
        """Read the file where there is one. Raises StoreError."""
        self._path = path
        self.results: dict[Run, Result] = {}
        if path.exists():
            try:
                self.results = dict(map(_read, json.loads(path.read_text())))
            except (OSError, ValueError, TypeError, KeyError) as error:
                why = " ".join(str(error).split())[:200]
                raise StoreError(f"{path}: holds no results: {why}; remove it") from error

    def add(self, run: Run, result: Result) -> None:
        """Keep a result. Raises OSError."""
        self.results[run] = result
        self._path.parent.mkdir(parents=True, exist_ok=True)
        entries = [
            {"run": asdict(one), "result": asdict(result)} for one, result in self.results.items()
        ]
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        beside.write_text(json.dumps(entries, indent=1) + "\n")
        beside.replace(self._path)


def _read(entry: dict[str, dict[str, object]]) -> tuple[Run, Result]:
    result = dict(entry["result"])
    outcome = result["outcome"]
    if isinstance(outcome, dict):
        result["outcome"] = Outcome(**outcome)
    return Run(**entry["run"]), Result(**result)  # type: ignore[arg-type]
