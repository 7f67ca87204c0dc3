"""Which files are read: those that may have a test that is meant, and no others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_collection_modifyitems
from tests.selection import MARKS, marks_in, marks_of_all, may_mean

TEXT = "pytestmark = pytest.mark.slurm\n@pytest.mark.torch\ndef test_it(): ..."


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", True),
        ("slurm", True),
        ("torch and not slurm", False),
        ("slurm and not torch", True),
        ("not slurm and not torch", False),
        ("load", False),
        ("slurm and nightly", False),
        ("not slurm and load", False),
        ("of_a_plugin", True),
        ("slurm and", True),
    ],
)
def test_a_file_is_read_if_it_may_have_a_test_that_is_meant(
    tmp_path: Path, expression: str, expected: bool
) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(TEXT)
    assert may_mean(expression, marks_in(path), marks_of_all(path)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pytestmark = pytest.mark.slurm\n", ["slurm"]),
        ("pytestmark = [pytest.mark.torch, pytest.mark.load]\n", ["torch", "load"]),
        ("pytestmark = [\n    pytest.mark.slurm,\n    pytest.mark.once,\n]\n", ["slurm", "once"]),
        ("", []),
    ],
)
def test_marks_that_all_tests_of_a_file_have_are_those_of_its_pytestmark(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(f"{text}@pytest.mark.nightly\ndef test_it():\n    assert [1]\n")
    assert marks_of_all(path) == expected


def test_all_marks_of_the_project_are_known(pytestconfig: pytest.Config) -> None:
    declared = [line.partition(":")[0] for line in pytestconfig.getini("markers")]
    assert [*MARKS] == declared[: len(MARKS)]


@pytest.mark.parametrize(
    ("text", "mark", "why"),
    [
        (
            "from tests.slurm.test_it import pytestmark",
            "slurm",
            "does not name its marks: {'slurm'}",
        ),
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
