"""Which files are read: those that may have a test that is meant, and no others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_collection_modifyitems
from tests.selection import marks_in, marks_of_all, may_mean

TEXT = "pytestmark = pytest.mark.slurm\n@pytest.mark.torch\ndef test_it(): ..."
LINES = TEXT.replace("pytest.mark.slurm", "[\n    pytest.mark.slurm,\n    pytest.mark.load,\n]")


@pytest.mark.parametrize(
    ("text", "expression", "expected"),
    [
        (TEXT, "", True),
        (TEXT, "slurm", True),
        (TEXT, "torch and not slurm", False),
        (TEXT, "slurm and not torch", True),
        (TEXT, "not slurm and not torch", False),
        (TEXT, "load", False),
        (TEXT, "slurm and nightly", False),
        (TEXT, "not slurm and load", False),
        (TEXT, "of_a_plugin", True),
        (TEXT, "slurm and", True),
        (LINES, "slurm and load and not torch", True),
        (LINES, "slurm and not load", False),
        ("def test_it(): assert [1]", "not slurm", True),
    ],
)
def test_a_file_is_read_if_it_may_have_a_test_that_is_meant(
    tmp_path: Path, text: str, expression: str, expected: bool
) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(text)
    assert may_mean(expression, marks_in(path), marks_of_all(path)) == expected


@pytest.mark.parametrize(
    ("text", "mark", "why"),
    [
        ("from test_others import pytestmark", "slurm", "does not name its marks: {'slurm'}"),
        (TEXT, "torch", "says that it has: {'slurm'}"),
    ],
)
def test_a_test_with_other_marks_than_its_file_names_is_an_error(
    tmp_path: Path, text: str, mark: str, why: str
) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(text)
    marks = [getattr(pytest.mark, mark).mark]
    item: Any = SimpleNamespace(path=path, nodeid="test_it", iter_markers=lambda: marks)
    with pytest.raises(pytest.UsageError, match=why):
        pytest_collection_modifyitems([item])
