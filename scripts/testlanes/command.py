"""The command line of ``scripts/run lanes``: which lanes there are, and what it prints of them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence

import click

from scripts.benchkit import text
from scripts.benchkit.command import Findings, bench_command
from scripts.labcluster.stage import REPO
from scripts.testlanes.run import Lane, Run, clock, run

_LOGS = REPO / "build" / "lanes"
_PYTEST = (".venv/bin/python", "-m", "pytest", "-p", "no:cacheprovider")
# If a cluster is broken, each test waits for minutes in vain: so stop after some failures.
_SHORT = ("-q", "--durations=30", "--maxfail=15")
# Tests of what runs in jobs that depend most on torch's version. Other lanes run all of them, with
# a newer torch.
_OF_JOBS = (
    *(f"tests/elastic/test_{name}.py" for name in ("rendezvous", "warm_origin")),
    "tests/elastic/test_saving.py::test_no_step_is_lost_as_a_node_joins_leaves_and_is_reclaimed",
    "tests/elastic/test_saving.py::test_a_process_alone_needs_no_process_group",
)
_LINES, _LINES_ABOVE = 60, 20  # shown of each failure
_PACKAGES = "packaging/try && packaging/try --rpm"
_PACKED = ("packaging", "slurm_plugin/Makefile", "Makefile", "pyproject.toml")
_RUN = ("scripts/apart", ".venv/bin/python", "scripts/run")


def _here(
    name: str,
    which: str,
    *where: str,
    without: Sequence[str] = (),
    alone: bool = False,
    nightly: bool = False,
) -> Lane:
    places = (*where, *(f"--ignore={one}" for one in without))
    load, night = ("" if alone else "not ") + "load", ("" if nightly else "not ") + "nightly"
    marks = " and ".join([which, load, night] if which else [load, night])
    command = ("scripts/apart", *_PYTEST, *_SHORT, *places, "-m", marks)
    return Lane(name, command, alone, nightly=nightly)


def _newer(name: str, suite: str, which: str, nightly: bool = True) -> Lane:
    matrix = ("scripts/matrix", "--suite", suite, "--only", which)
    return Lane(name, (*matrix, *_SHORT), matrix=True, nightly=nightly)


_TORCH = "torch and not slurm and not frameworks"
_ELASTIC = "tests/elastic"  # has most of these tests, and those that mostly wait
# The tests that start torchruns, or stand-ins for them: about half of these.
_AGENTS = tuple(f"tests/elastic/test_{name}.py" for name in ("rendezvous", "saving", "tasks"))
_SLURM = "slurm and not torch and not frameworks"
_TRAINING = "slurm and torch and not frameworks"
_UNITS = "not slurm and not torch and not frameworks"
_CONTROLLER = "tests/controller"  # has half of each kind of tests
_PLANNER = tuple(f"tests/{name}" for name in ("planner", "planner_bench", "reader", "replay"))

# The lanes that wait longest, for Slurm or torchruns, come first: they take as long on a quiet
# machine, and must not be alone at the end. Lanes that need only processors come last;
# packages wait for downloads and disks.
# Each test is in exactly one of the lanes of this host.
LANES = (
    _newer("newest", "forky", "not newest", nightly=False),
    _here("slurm", _SLURM, without=(_CONTROLLER,)),
    _here("slurm-controller", _SLURM, _CONTROLLER),
    _here("agents", _TORCH, *_AGENTS),
    _here("training", _TRAINING, without=(_CONTROLLER,)),
    _here("site", _TRAINING, _CONTROLLER),
    _here("elastic", _TORCH, _ELASTIC, without=_AGENTS),
    Lane("packages", ("sh", "-c", _PACKAGES), tests=False, matrix=True, nightly=True, of=_PACKED),
    _here("frameworks", "frameworks"),
    _here("units-elastic", _UNITS, _ELASTIC),
    _here("units", _UNITS, without=(_CONTROLLER, _ELASTIC, *_PLANNER)),
    _here("units-planner", _UNITS, *_PLANNER),
    _here("torch", _TORCH, without=(_ELASTIC,)),
    _here("units-controller", _UNITS, _CONTROLLER),
    Lane("lint", ("make", "--no-print-directory", "style"), tests=False),  # tests build the docs
    _here("load", "", alone=True),
    _newer("forky-training", "forky", "torch"),
    _newer("forky", "forky", "not torch"),
    _newer("trixie", "trixie", "slurm"),
    _here("nightly-slurm", "slurm", nightly=True),
    _here("nightly-others", "not slurm", nightly=True),
    Lane("oldest", ("scripts/oldest-torch", *_SHORT, *_OF_JOBS), matrix=True, nightly=True),
    Lane("machine", ("packaging/machine/run",), tests=False, matrix=True, nightly=True),
    Lane("chaos", (*_RUN, "chaos", "--minutes=20"), tests=False, nightly=True),
    Lane("launch-corpus", (*_RUN, "launch-corpus"), tests=False, nightly=True),
    Lane("examples", (*_RUN, "examples"), tests=False, nightly=True),
    _here("nightly-load", "", alone=True, nightly=True),
)
_SETS = ("change", "nightly", "all")


@bench_command()
@click.argument("names", nargs=-1, type=click.Choice([*(lane.name for lane in LANES), *_SETS]))
@click.option("--at-once", type=click.IntRange(min=1), default=8, help="How many run side by side.")
@click.option(
    "--within",
    type=click.FloatRange(min=0, min_open=True),
    default=80.0,
    metavar="MINUTES",
    help="After this time the lanes that still run are ended, and count as failed.",
    show_default=True,
)
def main(names: Sequence[str], at_once: int, within: float) -> Findings:
    """Run the checks and tests in lanes, side by side and apart from each other.

    Without names it runs what each change must pass and needs no other system than this host's.
    'change' is all that each change must pass: the newest Slurm, too, and packages for a day after
    what makes them has changed. 'nightly' is all the rest, 'all' is all. The output of a lane is
    shown when it ends.
    """
    if os.getuid() != 0:
        at_once = 1  # nothing keeps them apart
    os.chdir(REPO)
    _LOGS.mkdir(parents=True, exist_ok=True)
    begin_s = time.monotonic()
    lanes = chosen(names)
    left = [lane.name for lane in LANES if lane not in lanes]
    click.echo(f"lanes: {' '.join(lane.name for lane in lanes)}; not: {' '.join(left) or 'none'}")
    done = run(lanes, at_once, _LOGS, click.echo, within * 60)
    failed = [one.lane.name for one in done if one.code]
    codes = {one.lane.name: one.code for one in done}
    wrong = f"failed: {', '.join(failed)}" if failed else ""
    parts = table(done, time.monotonic() - begin_s), *why(done)
    return Findings("\n\n".join(parts), codes, wrong)


def chosen(
    names: Sequence[str], changed: Callable[[Sequence[str]], bool] | None = None
) -> list[Lane]:
    """Return the lanes that these words mean, in the order in which they start.

    ``changed``: whether any of some paths has changed in the last day.
    """
    changed = changed or _changed

    def means(lane: Lane) -> bool:
        if not names:
            return not lane.matrix and not lane.nightly
        if "all" in names or lane.name in names or (lane.nightly and "nightly" in names):
            return True
        of_change = not lane.nightly or (bool(lane.of) and changed(lane.of))
        return "change" in names and of_change

    return [lane for lane in LANES if means(lane)]


def _changed(paths: Sequence[str]) -> bool:
    """Whether a commit of the last day has changed any of them, or git cannot say."""
    log = ("git", "log", "-1", "--since=1 day ago", "--format=%h", "--", *paths)
    said = subprocess.run(log, cwd=REPO, capture_output=True, text=True, check=False)
    return said.returncode != 0 or bool(said.stdout)


def table(done: Sequence[Run], wall_s: float) -> str:
    """Return a line for each lane, and the sum as pytest says it."""
    words = ("passed", "failed", "skipped")
    rows = [
        (
            one.lane.name,
            *(str(one.counts[word]) for word in words),
            clock(one.wall_s),
            clock(one.processor_s),
            one.outcome,
        )
        for one in done
    ]
    total = ", ".join(f"{sum(one.counts[word] for one in done)} {word}" for word in words)
    lines = text.table([("lane", *words, "time", "processor", ""), *rows])
    return f"{lines}\n{total} in {clock(wall_s)}"


def why(done: Sequence[Run]) -> list[str]:
    """Return why tests failed. It is printed last, because CI keeps only the end of the output.

    For each failure it has the last lines, and before them pytest's lines about the error if
    these are further up.
    """
    said = []
    for one in done:
        for failure in one.failures:
            lines = failure.strip().splitlines()
            above = [line for line in lines[:-_LINES] if line.startswith(("E ", "____"))]
            cut = [*above[:_LINES_ABOVE], *lines[-_LINES:]]
            said.append("\n".join([f"==== why {one.lane.name} failed", *cut]))
    return said
