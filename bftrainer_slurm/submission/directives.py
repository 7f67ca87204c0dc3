"""Reads options of sbatch in ``#SBATCH`` lines, command lines and the environment, or drops some.

Only the options that concern a trainer are understood; all others pass through unchanged.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

LARGEST_SCRIPT = 4 * 2**20  # Slurm takes no larger one, and /dev/zero has no end
_MAGIC = "#SBATCH"


@dataclass(frozen=True)
class _OptionRule:
    """An option that concerns a trainer."""

    name: str
    short: str = ""
    flag: bool = False  # takes a value only after "="
    rewritten: bool = False  # our rewriting replaces or drops it
    variable: str = ""  # sbatch's environment variable for it


_RULES = (
    _OptionRule("array", "a", rewritten=True, variable="SBATCH_ARRAY_INX"),
    _OptionRule("begin", "b"),
    _OptionRule("bftrainer", flag=True, rewritten=True),
    _OptionRule("chdir", "D"),
    _OptionRule("comment", rewritten=True),
    _OptionRule("constraint", "C", variable="SBATCH_CONSTRAINT"),
    _OptionRule("cpus-per-gpu", rewritten=True, variable="SBATCH_CPUS_PER_GPU"),
    _OptionRule("cpus-per-task", "c"),
    _OptionRule("dependency", "d", rewritten=True),
    _OptionRule("error", "e"),
    _OptionRule("exclusive", flag=True, rewritten=True),
    _OptionRule("gpus", "G", rewritten=True, variable="SBATCH_GPUS"),
    _OptionRule("gpus-per-node"),
    _OptionRule("gpus-per-task"),
    _OptionRule("gres"),
    _OptionRule("hold", flag=True, rewritten=True),
    _OptionRule("input", "i"),
    _OptionRule("job-name", "J", variable="SBATCH_JOB_NAME"),
    _OptionRule("licenses", "L"),
    _OptionRule("mem", variable="SBATCH_MEM_PER_NODE"),
    _OptionRule("mem-per-cpu", variable="SBATCH_MEM_PER_CPU"),
    _OptionRule("mem-per-gpu", rewritten=True, variable="SBATCH_MEM_PER_GPU"),
    _OptionRule("no-requeue", flag=True, rewritten=True),
    _OptionRule("nodefile", "F"),
    _OptionRule("nodelist", "w", rewritten=True),
    _OptionRule("nodes", "N", rewritten=True),
    _OptionRule("ntasks", "n", rewritten=True),
    _OptionRule("ntasks-per-gpu", rewritten=True),
    _OptionRule("ntasks-per-node", rewritten=True),
    _OptionRule("open-mode", rewritten=True),
    _OptionRule("output", "o"),
    _OptionRule("partition", "p", rewritten=True, variable="SBATCH_PARTITION"),
    _OptionRule("prefer", rewritten=True),
    _OptionRule("requeue", flag=True, rewritten=True),
    _OptionRule("reservation", rewritten=True, variable="SBATCH_RESERVATION"),
    _OptionRule("signal", rewritten=True, variable="SBATCH_SIGNAL"),
    _OptionRule("time", "t", variable="SBATCH_TIMELIMIT"),
    _OptionRule("time-min", rewritten=True),
    _OptionRule("wait", flag=True, rewritten=True, variable="SBATCH_WAIT"),
)
_WITH_VALUE = {one.name for one in _RULES if not one.flag}
_FLAGS = {one.name for one in _RULES if one.flag}
_SHORT = {one.short: one.name for one in _RULES if one.short}
REWRITTEN = {one.name for one in _RULES if one.rewritten}
_VARIABLES = {one.variable: one.name for one in _RULES if one.variable}
# sbatch's short options without a value; another option may follow in the same word: -QN2-4.
_SHORT_FLAGS = "HOQWhksuv"
# The rewriting drops these options, but sbatch would still take them from the environment.
DROPPED_VARIABLES = frozenset(
    {
        *("SBATCH_CPUS_PER_GPU", "SBATCH_GPUS", "SBATCH_MEM_PER_GPU"),
        *("SBATCH_RESERVATION", "SBATCH_SIGNAL", "SBATCH_WAIT"),
    }
)


class SubmissionError(ValueError):
    """A submission that cannot become a trainer; one line says what to write instead."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def printable(text: str) -> str:
    """Return what may be shown on a terminal, whatever a user wrote."""
    return "".join(one if one.isprintable() else "?" for one in text)


@dataclass(frozen=True)
class _Option:
    """One or two words of a command line, and the options in them (none if we ignore them)."""

    words: tuple[str, ...]
    values: dict[str, str] = field(default_factory=dict)


def read_directives(script: str) -> dict[str, str]:
    """Return the options in the ``#SBATCH`` lines of a script, as ``read_options`` does.

    Raises:
        SubmissionError: this is not a batch script, or quotes do not match.
    """
    if not script.startswith("#!"):
        raise SubmissionError("not a batch script: its first line must be like #!/bin/bash")
    words = [word for line in _directive_lines(script) for word in _words(line)]
    return read_options(words)


def read_options(words: Sequence[str]) -> dict[str, str]:
    """Read options as sbatch does, from a command line or a directive.

    Returns the last value of each option, by its long name; ``""`` for a flag without a value.
    """
    values: dict[str, str] = {}
    for option in _options(words):
        values |= option.values
    return values


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Read the options that sbatch takes from the environment."""
    return {name: environment[one] for one, name in _VARIABLES.items() if environment.get(one)}


def without_options(words: Sequence[str], names: AbstractSet[str]) -> list[str]:
    """Return the words of a command line without these options and their values."""
    kept = (option for option in _options(words) if not names & option.values.keys())
    return [word for option in kept for word in option.words]


def kept_directives(script: str) -> list[str]:
    """Return the ``#SBATCH`` lines of a script without the options that are ``REWRITTEN``."""
    lines = []
    for line in _directive_lines(script):
        words = _words(line)
        kept = without_options(words, REWRITTEN)
        if kept == words:
            lines.append(line)
        elif kept:
            lines.append(f"{_MAGIC} {shlex.join(kept)}")
    return lines


def _directive_lines(script: str) -> Iterator[str]:
    """Yield the directives; like sbatch, stop at the first line that is a command."""
    for line in script.splitlines():
        if line.startswith(_MAGIC):
            yield line
        elif line.strip() and not line.lstrip().startswith("#"):
            return


def _words(line: str) -> list[str]:
    text = line.removeprefix(_MAGIC)
    for attempt in (text, re.sub(r"(^|\s)#.*", "", text)):  # a comment may have an unmatched quote
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
        name, flags, value = _parse_word(word)
        if name and value is None:
            if not rest:
                raise SubmissionError(f"{word} needs a value")
            value = rest.pop(0)
            yield _Option((word, value), flags | {name: value})
        else:
            yield _Option((word,), flags | ({name: value or ""} if name else {}))


def _parse_word(word: str) -> tuple[str, dict[str, str], str | None]:
    """Return an option's name, the flags before it, and its value if it is in the same word."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        if name.startswith("bf") and "bftrainer".startswith(name):
            name = "bftrainer"  # no option of sbatch begins with bf; the plugin takes --bft too
        if name in _FLAGS:
            return name, {}, value
        return (name, {}, value if equals else None) if name in _WITH_VALUE else ("", {}, None)
    if not word.startswith("-") or len(word) < 2:
        return "", {}, None
    tail = word[1:].lstrip(_SHORT_FLAGS)
    before = word[1 : len(word) - len(tail)]
    flags = {name: "" for letter, name in (("H", "hold"), ("W", "wait")) if letter in before}
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
    # DAYS-HOURS[:MINUTES[:SECONDS]], or MINUTES[:SECONDS], or HOURS:MINUTES:SECONDS
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    numeric = all(part.isascii() and part.isdigit() for part in (*parts, days if dash else "0"))
    if not numeric or len(parts) > len(units):
        raise SubmissionError(f"'{time[:40]}' is not a time limit; write for example -t 2-12:00:00")
    seconds = sum(int(part) * units[at] for at, part in enumerate(parts))
    seconds += int(days) * 86400 if dash else 0
    return -(-seconds // 60) or None  # 0 means no limit
