"""The ``#SBATCH`` lines at the head of a batch script: what they say, and a copy without some.

Only the options that concern a trainer are understood; all others pass through as they are.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

_MAGIC = "#SBATCH"


@dataclass(frozen=True, slots=True)
class _Known:
    """An option that concerns a trainer."""

    name: str
    short: str = ""
    flag: bool = False  # a value only after "="
    decided: bool = False  # by the rewriting, which may drop it, or sbatch does not know it
    variable: str = ""  # of sbatch, which stands for it


_KNOWN = (
    _Known("array", "a", decided=True, variable="SBATCH_ARRAY_INX"),
    _Known("begin", "b"),
    _Known("bftrainer", flag=True, decided=True),
    _Known("chdir", "D"),
    _Known("comment", decided=True),
    _Known("constraint", "C", variable="SBATCH_CONSTRAINT"),
    _Known("cpus-per-gpu", decided=True, variable="SBATCH_CPUS_PER_GPU"),
    _Known("cpus-per-task", "c"),
    _Known("dependency", "d", decided=True),
    _Known("error", "e"),
    _Known("exclusive", flag=True, decided=True),
    _Known("gpus", "G", decided=True, variable="SBATCH_GPUS"),
    _Known("gpus-per-node"),
    _Known("gpus-per-task"),
    _Known("gres"),
    _Known("hold", flag=True, decided=True),
    _Known("input", "i"),
    _Known("job-name", "J", variable="SBATCH_JOB_NAME"),
    _Known("licenses", "L"),
    _Known("mem-per-gpu", decided=True, variable="SBATCH_MEM_PER_GPU"),
    _Known("no-requeue", flag=True, decided=True),
    _Known("nodefile", "F"),
    _Known("nodelist", "w", decided=True),
    _Known("nodes", "N", decided=True),
    _Known("ntasks", "n", decided=True),
    _Known("ntasks-per-gpu", decided=True),
    _Known("ntasks-per-node", decided=True),
    _Known("open-mode", decided=True),
    _Known("output", "o"),
    _Known("partition", "p", decided=True, variable="SBATCH_PARTITION"),
    _Known("prefer", decided=True),
    _Known("requeue", flag=True, decided=True),
    _Known("reservation", decided=True, variable="SBATCH_RESERVATION"),
    _Known("signal", variable="SBATCH_SIGNAL"),
    _Known("time", "t", variable="SBATCH_TIMELIMIT"),
    _Known("time-min", decided=True),
)
_VALUED = {one.name for one in _KNOWN if not one.flag}
_FLAGS = {one.name for one in _KNOWN if one.flag}
_SHORT = {one.short: one.name for one in _KNOWN if one.short}
DECIDED = {one.name for one in _KNOWN if one.decided}
_VARIABLES = {one.variable: one.name for one in _KNOWN if one.variable}
# sbatch's short options without a value, which may stand before another one, as in -QN2-4.
_SHORT_FLAGS = "HOQWhksuv"
# sbatch would give a job what these ask for, although the rewriting drops it.
DROPPED_VARIABLES = frozenset(
    {"SBATCH_CPUS_PER_GPU", "SBATCH_GPUS", "SBATCH_MEM_PER_GPU", "SBATCH_RESERVATION"}
)


class SubmissionError(ValueError):
    """A submission that cannot become a trainer; one line that says what to write instead."""


@dataclass(frozen=True, slots=True)
class _Option:
    """One or two words of a command line, and what they mean (empty if we do not need to know)."""

    words: tuple[str, ...]
    values: dict[str, str] = field(default_factory=dict)


def read_directives(script: str) -> dict[str, str]:
    """Return the options in the ``#SBATCH`` lines of a script, as ``read_options``.

    Raises:
        SubmissionError: it is not a batch script, or quotes do not match.
    """
    if not script.startswith("#!"):
        raise SubmissionError("not a batch script: its first line must be like #!/bin/bash")
    words = [word for line in _head(script) for word in _words(line)]
    return read_options(words)


def read_options(words: Sequence[str]) -> dict[str, str]:
    """Read options as sbatch would, from a command line or a directive.

    Returns them by their long names, the last one of each; a flag without a value has ``""``.
    """
    values: dict[str, str] = {}
    for option in _options(words):
        values |= option.values
    return values


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Read the options that sbatch takes from the environment."""
    return {name: environment[one] for one, name in _VARIABLES.items() if environment.get(one)}


def without(words: Sequence[str], names: AbstractSet[str]) -> list[str]:
    """Return the words of a command line, less these options and their values."""
    kept = (option for option in _options(words) if not names & option.values.keys())
    return [word for option in kept for word in option.words]


def header_without_ours(script: str) -> list[str]:
    """Return the ``#SBATCH`` lines of a script, less the options that the rewriting decides."""
    lines = []
    for line in _head(script):
        words = _words(line)
        kept = without(words, DECIDED)
        if kept == words:
            lines.append(line)
        elif kept:
            lines.append(f"{_MAGIC} {shlex.join(kept)}")
    return lines


def _head(script: str) -> Iterator[str]:
    """Give the directives: sbatch looks no further than the first line that is a command."""
    for line in script.splitlines():
        if line.startswith(_MAGIC):
            yield line
        elif line.strip() and not line.lstrip().startswith("#"):
            return


def _words(line: str) -> list[str]:
    text = line.removeprefix(_MAGIC)
    for attempt in (text, re.sub(r"(^|\s)#.*", "", text)):  # a remark may have an unmatched quote
        try:
            words = shlex.split(attempt)
        except ValueError:
            continue
        remark = next((at for at, word in enumerate(words) if word.startswith("#")), len(words))
        return words[:remark]
    raise SubmissionError(f"quotes do not match in '{line[:80]}'")


def _options(words: Sequence[str]) -> Iterator[_Option]:
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, flags, value = _read(word)
        if name and value is None:
            if not rest:
                raise SubmissionError(f"{word} needs a value")
            value = rest.pop(0)
            yield _Option((word, value), flags | {name: value})
        else:
            yield _Option((word,), flags | ({name: value or ""} if name else {}))


def _read(word: str) -> tuple[str, dict[str, str], str | None]:
    """Return an option's name, the flags before it, and its value if it is in the same word."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        if name.startswith("bf") and "bftrainer".startswith(name):
            name = "bftrainer"  # no option of sbatch begins so; the plugin knows --bft too
        if name in _FLAGS:
            return name, {}, value
        return (name, {}, value if equals else None) if name in _VALUED else ("", {}, None)
    if not word.startswith("-") or len(word) < 2:
        return "", {}, None
    tail = word[1:].lstrip(_SHORT_FLAGS)
    flags = {"hold": ""} if "H" in word[1 : len(word) - len(tail)] else {}
    name = _SHORT.get(tail[:1], "")
    return name, flags, (tail[1:] or None) if name else None


def minutes_of(time: str) -> int | None:
    """Return a time limit in minutes, rounded up; None for no limit.

    Raises:
        SubmissionError: not a time limit as sbatch takes it.
    """
    if time.lower() in ("unlimited", "infinite"):
        return None
    days, dash, clock = time.rpartition("-")
    parts = clock.split(":")
    if not all(part.isascii() and part.isdigit() for part in (*parts, *([days] if dash else []))):
        raise SubmissionError(f"'{time[:40]}' is not a time limit; write for example -t 2-12:00:00")
    numbers = [int(part) for part in parts]
    # DAYS-HOURS[:MINUTES[:SECONDS]], or MINUTES[:SECONDS], or HOURS:MINUTES:SECONDS
    units = (3600, 60, 1) if dash or len(numbers) == 3 else (60, 1)
    if len(numbers) > len(units):
        raise SubmissionError(f"'{time[:40]}' is not a time limit; write for example -t 2-12:00:00")
    seconds = sum(number * unit for number, unit in zip(numbers, units, strict=False))
    seconds += int(days) * 86400 if dash else 0
    return -(-seconds // 60) or None  # 0 asks for no limit
