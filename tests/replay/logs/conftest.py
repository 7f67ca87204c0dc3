"""Logs as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from bftrainer_slurm.replay.logs.log import Log, LogOptions, read_log

Reads: TypeAlias = Callable[..., Log]


@pytest.fixture
def reads(tmp_path: Path) -> Reads:
    """Reads a log from second 1000 to 2000, unless told otherwise; what options name are texts."""

    def written(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def read(log: str | bytes, **options: Any) -> Log:
        named = {"down", "reservations", "node_types"}.intersection(options)
        files = {name: written(name, options[name]) for name in named}
        window = {"from_s": 1000, "to_s": 2000}
        return read_log(written("log", log), LogOptions(**window | options | files))

    return read
