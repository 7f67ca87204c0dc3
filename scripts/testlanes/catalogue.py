"""Which lanes there are. How they are run is not known here."""

from __future__ import annotations

from dataclasses import dataclass

_PYTEST = (".venv/bin/python", "-m", "pytest", "-p", "no:cacheprovider")
_SHORT = ("-q", "--durations=30")
_PACKAGES = "packaging/try && packaging/try --rpm"


@dataclass(frozen=True)
class Lane:
    """A command that runs beside others, or ``alone``, when all others have ended.

    Its tests are counted where it ``tests``; the ``matrix`` needs more than this host's Slurm.
    """

    name: str
    command: tuple[str, ...]
    alone: bool = False
    tests: bool = True
    matrix: bool = False


def _here(name: str, which: str, alone: bool = False) -> Lane:
    return Lane(name, ("scripts/apart", *_PYTEST, *_SHORT, "-m", which), alone)


def _newer(suite: str) -> Lane:
    return Lane(suite, ("scripts/matrix", "--suite", suite, *_SHORT), matrix=True)


# The longest come first. Each test is in one of the lanes of this host, and in no other one.
LANES = (
    _newer("forky"),
    _here("training", "slurm and torch and not chaos and not load"),
    _newer("trixie"),
    _here("chaos", "chaos and not load"),
    _here("torch", "torch and not slurm and not chaos and not load"),
    _here("slurm", "slurm and not torch and not chaos and not load"),
    _here("units", "not slurm and not torch and not chaos and not load and not frameworks"),
    Lane("lint", ("make", "--no-print-directory", "lint"), tests=False),
    Lane("packages", ("sh", "-c", _PACKAGES), tests=False, matrix=True),
    _here("load", "load", alone=True),
)
