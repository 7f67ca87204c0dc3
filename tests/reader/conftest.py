"""A made-up week, for the tests of what looks back on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.reader import questions
from tests.page.made_up import Week, write_history

NOW_S = 1_795_518_400.0  # about noon


@pytest.fixture(scope="session")
def week() -> Week:
    return Week(nodes=120, now_s=NOW_S, days=3.0)


@pytest.fixture(scope="session")
def history(week: Week, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("week") / "history.sqlite"
    write_history(week, path)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where ``written`` is."""
    return tmp_path / "history.sqlite"


@pytest.fixture
def written(path: Path) -> Iterator[History]:
    """A history without a row, in which a test writes."""
    history = History(path)
    yield history
    history.close()


@pytest.fixture(autouse=True)
def an_answer_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine an answer is late, and not left out."""
    monkeypatch.setattr(questions, "_DEADLINE_S", 600.0)
    monkeypatch.setattr(questions, "_MOST_WAIT_S", 600.0)
