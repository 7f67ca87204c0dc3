"""Lines come one by one, bounded, from plain and gzipped files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bftrainer_slurm.replay.logs.lines import LONGEST_LINE, read_lines


def test_lines_keep_their_numbers_over_empty_ones(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a\n\n  \nb")
    assert list(read_lines(tmp_path / "log")) == [(1, "a"), (4, "b")]


def test_gzip_is_told_by_its_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(gzip.compress(b"a\nb\n"))
    assert list(read_lines(tmp_path / "log")) == [(1, "a"), (2, "b")]


def test_damaged_gzip_is_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(gzip.compress(b"a\n" * 10_000)[:-12])
    with pytest.raises(EOFError):
        list(read_lines(tmp_path / "log"))


def test_a_line_without_end_comes_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * (3 * LONGEST_LINE) + b"\nb\n")
    lines = list(read_lines(tmp_path / "log"))
    assert max(len(text) for _, text in lines) == LONGEST_LINE
    assert [number for number, _ in lines] == [1, 1, 1, 2]


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe\x00\n")
    ((_, text),) = read_lines(tmp_path / "log")
    assert "\ufffd" in text


def test_progress_adds_up_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"abc\n" * 1_000_000)
    told: list[int] = []
    for _ in read_lines(tmp_path / "log", told.append):
        pass
    assert sum(told) == 4_000_000
    assert len(told) > 2
