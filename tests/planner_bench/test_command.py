"""``scripts/run bench-planner`` as it is called."""

from __future__ import annotations

from tests.tools import run_tool


def test_quick_prints_the_tables() -> None:
    done = run_tool("bench-planner", "--quick", "--problems", "1", "--plans", "2")
    assert done.returncode == 0, done.stderr
    words = [line.split() for line in done.stdout.splitlines()]
    assert any(row[:2] == ["5x16", "1"] and row[-4:] == ["1", "of", "1", "equal"] for row in words)
    assert any(row[:3] == ["10x64", "fresh", "2"] for row in words)
    assert any(row[:3] == ["10x64", "stream", "2"] for row in words)
