"""Findings of checks: how serious, what was found, which line to change, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

SLURM_CONF, CGROUP_CONF, PLUGSTACK = "slurm.conf", "cgroup.conf", "plugstack.conf"
OURS, SHELL = "bftrainer.toml", "shell"
SCHEDULER = "SchedulerParameters"


class Level(Enum):
    """How serious a finding is."""

    CHANGE = "change"  # a promise does not hold until this is changed
    CONSIDER = "consider"  # another setting would be better for ordinary jobs or trainers
    UNKNOWN = "unknown"  # this host does not show it
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Change:
    """A line to write into a file, as a person reads it, or a command to run (file ``shell``)."""

    file: str
    line: str


def setting(key: str, value: str = "") -> str:
    """Return a setting as Slurm's files have it; without a value it is a flag."""
    return f"{key}={value}" if value else key


def conf(key: str, value: str) -> Change:
    """Return a line of slurm.conf."""
    return Change(SLURM_CONF, setting(key, value))


def in_scheduler(option: str, value: str = "") -> Change:
    """Return an option of SchedulerParameters."""
    return Change(SLURM_CONF, f"{SCHEDULER}=...,{setting(option, value)}")


def ours(key: str, value: str) -> Change:
    """Return a line of bftrainer.toml."""
    return Change(OURS, f"{key} = {value}")


def shell(command: str) -> Change:
    """Return a command to run."""
    return Change(SHELL, command)


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check. ``why`` says why it matters, or how to find out."""

    check: str
    level: Level
    found: str
    why: str = ""
    changes: tuple[Change, ...] = ()


def ok(check: str, found: str) -> Finding:
    """Say that all is well."""
    return Finding(check, Level.OK, found)


def must(check: str, found: str, why: str, *changes: Change, unless: bool = False) -> Finding:
    """Say that something has to change, unless all is well."""
    return ok(check, found) if unless else Finding(check, Level.CHANGE, found, why, changes)


def consider(check: str, found: str, why: str, *changes: Change, unless: bool = False) -> Finding:
    """Say that another setting is better, unless all is well."""
    return ok(check, found) if unless else Finding(check, Level.CONSIDER, found, why, changes)


def unknown(check: str, found: str, why: str, *changes: Change) -> Finding:
    """Say that this host does not show it."""
    return Finding(check, Level.UNKNOWN, found, why, changes)
