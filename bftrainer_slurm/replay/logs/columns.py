"""Lines of a log as columns of text, split by pyarrow; and columns of text to numbers.

The readers know what a column's text means. A text that is not a plain number is parsed once,
however often it occurs.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pyarrow import compute

from bftrainer_slurm.replay.logs.jobs import Integers, Notes, Objects, Reals
from bftrainer_slurm.replay.logs.lines import Lines

_PLAIN = "^[0-9]{1,12}$"  # numbers; Unix seconds too
_BATCH = 1 << 23  # characters at a time: it bounds the memory
_OF_A_LINE = 64  # and so many for each line

Split: TypeAlias = Callable[[pyarrow.Array], pyarrow.Array]
Parse: TypeAlias = Callable[[str], float | None]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some lines of a log: their numbers, their text, and their columns by name."""

    line: Integers
    text: Objects
    columns: Mapping[str, pyarrow.Array]

    def only(self, which: NDArray[np.bool_]) -> Rows:
        """Return some of the rows."""
        mask = pyarrow.array(which)
        columns = {name: column.filter(mask) for name, column in self.columns.items()}
        return Rows(self.line[which], self.text[which], columns)

    def readable(self, why: Objects, notes: Notes) -> NDArray[np.bool_]:
        """Return which rows are good; note the others."""
        good: NDArray[np.bool_] = why == ""
        for one in zip(self.line[~good].tolist(), self.text[~good], why[~good], strict=True):
            notes.skip(*one)
        return good

    def texts(self, name: str) -> Objects:
        """Return a column; empty texts if the log has no column of this name."""
        if name not in self.columns:
            return np.full(len(self.line), "", object)
        encoded = self.columns[name].dictionary_encode()
        distinct = np.array(encoded.dictionary.to_pylist(), object)
        return np.asarray(distinct[encoded.indices.to_numpy()])

    def numbers(self, name: str, parse: Parse, absent: float = 0.0) -> tuple[Reals, Objects]:
        """Return the numbers in a column (NaN: nothing), and why there is none, or "".

        ``parse`` reads what is not a plain number. All rows are ``absent`` if the log has no such
        column.
        """
        why = np.full(len(self.line), "", object)
        if name not in self.columns:
            return np.full(len(self.line), absent), why
        column = self.columns[name]
        is_plain = compute.match_substring_regex(column, _PLAIN)
        plain = compute.if_else(is_plain, column, None).cast(pyarrow.float64())
        values = np.array(plain.to_numpy(zero_copy_only=False))
        others = column.filter(compute.invert(is_plain)).dictionary_encode()
        read = [_attempt(parse, text) for text in others.dictionary.to_pylist()]
        if read:
            each, where = others.indices.to_numpy(), np.isnan(values)
            values[where], why[where] = (
                np.array(one, object)[each] for one in zip(*read, strict=True)
            )
        return values, why


def rows_of(
    lines: Lines, split: Split, width: int, names: Mapping[str, int], notes: Notes
) -> Iterator[Rows]:
    """Yield the lines that have so many columns, many at a time; the others are noted.

    ``names`` says which column is where.
    """
    for numbers, texts in _batches(lines):
        fields = split(pyarrow.array(texts))
        found = compute.list_value_length(fields).to_numpy()
        why = np.array([f"it has {count} columns, not {width}" for count in found.tolist()], object)
        why[found == width] = ""
        rows = Rows(numbers, np.array(texts, object), {})
        fits = rows.readable(why, notes)
        fields = fields.filter(pyarrow.array(fits))
        columns = {name: compute.list_element(fields, at) for name, at in names.items()}
        yield Rows(rows.line[fits], rows.text[fits], columns)


def splitter(header: str) -> Split:
    """Return the character that separates the columns below a header."""
    if "|" in header:
        return lambda lines: compute.split_pattern(lines, "|")
    texts = pyarrow.list_(pyarrow.string())
    return lambda lines: pyarrow.array([fields(one, header) for one in lines.to_pylist()], texts)


def fields(line: str, header: str) -> list[str]:
    """Split one line below a header at each |, or as CSV; empty if that is impossible."""
    if "|" in header:
        return line.split("|")
    try:
        return next(csv.reader((line,)))
    except csv.Error:
        return []


def columns_of(header: str) -> list[str]:
    """Return the names of a header's columns in small letters; none if it is not a header."""
    return [name.strip().lower() for name in fields(header, header)]


def first_of(*whys: Objects) -> Objects:
    """Return the first reason of each row."""
    return np.asarray(np.select([why != "" for why in whys], whys, ""), object)


def _attempt(parse: Parse, text: str) -> tuple[float, str]:
    try:
        value = parse(text)
        return math.nan if value is None else float(value), ""
    except (ValueError, OverflowError) as error:
        return math.nan, str(error)


def _batches(lines: Lines) -> Iterator[tuple[Integers, list[str]]]:
    numbers: list[int] = []
    texts: list[str] = []
    size = 0
    for number, text in lines:
        numbers.append(number)
        texts.append(text)
        size += len(text) + _OF_A_LINE
        if size > _BATCH:
            yield np.array(numbers), texts
            numbers, texts, size = [], [], 0
    if texts:
        yield np.array(numbers), texts
