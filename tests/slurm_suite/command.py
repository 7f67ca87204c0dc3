"""``scripts/run slurm-suite``: Slurm's own tests on clusters side by side, by its regression.py.

The testsuite is copied from where Slurm's source lies into each cluster's folder, never into ours.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from scripts.benchkit.command import (
    Findings,
    RefusedError,
    bench_command,
    folder,
    number,
    progress,
)
from scripts.benchkit.logs import Tail
from scripts.benchkit.text import columns
from scripts.labcluster.cluster import LabError, installed_version
from scripts.labcluster.lab import Lab, started_lab
from scripts.labcluster.site import started_site
from scripts.labcluster.waiting import wait_until

_SELECTION = re.compile(r"(\d+|\*)\.(\d+|\*)(,(\d+|\*)\.(\d+|\*))*")
_VERSION = re.compile(r"^\s*Version:\s*(\d+)\.(\d+)", re.MULTILINE)
_IF_NONE_IS_IDLE = "if {[llength [get_nodes_by_state]] < 1} {"
_SUITE = Path("suite") / "expect"  # in a cluster's folder
_RESULTS = "results.json"
_PATIENCE_S = 30.0

# Options and behaviour of srun, scontrol, sinfo, squeue, scancel, salloc and sbatch.
TESTS = "1.*,2.*,3.*,4.*,5.*,6.*,15.*,17.*"
PLAIN, OURS = "without", "with"
_HOLDS = "#!/bin/bash\nsrun sleep 100000\n"


@dataclass(frozen=True)
class Verdicts:
    """What became of a test without trainers, and with them: pass, fail, skip or none."""

    test: str
    plain: str
    ours: str


@bench_command(LabError, TimeoutError)
@click.option(
    "--source",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Slurm's source, of the version that is installed.",
)
@click.option("--tests", default=TESTS, help="Which ones.")
@number("--nodes", 8, 2, 64, "Of each cluster.")
@folder(
    "--keep",
    "kept",
    "Where the logs are kept of tests whose verdicts differ.",
    Path("slurm-suite-output"),
)
def main(source: Path, tests: str, nodes: int, kept: Path) -> Findings:
    """Run SchedMD's own tests on a Slurm without us, and on one with trainers in all holes.

    Two clusters run side by side, both at Slurm's own settings. Exit code 1 if a test ends
    otherwise with trainers than without. Needs root, and expect.

    \b
    Example:
      scripts/run slurm-suite --source ~/slurm-22.05.8 --tests '1.5,17.*'
    """
    suite = _checked(source)
    if os.getuid() != 0:
        raise RefusedError("needs root: some of Slurm's tests do")
    if not _SELECTION.fullmatch(tests):
        raise RefusedError(f"--tests {tests}: write numbers as '1.5,17.*'")
    with ExitStack() as stack:
        plain = stack.enter_context(started_lab(nodes, kill_wait=30, bf_interval=30))
        site = stack.enter_context(started_site(nodes, {}, kill_wait=30, bf_interval=30))
        array = site.submit(_HOLDS, f"1-{nodes}")
        wait_until(lambda: len(site.lab.running(array)) == nodes)
        labs = {PLAIN: plain, OURS: site.lab}
        found = _run(suite, tests, labs)
        for one in found:
            if one.plain != one.ours:
                _keep(labs, one.test, kept.resolve())
        reclaimed = site.controller.trainer(array)["reclaimed"]
    return _findings(found, reclaimed)


def _findings(found: Sequence[Verdicts], reclaimed: int) -> Findings:
    """Return what there is to say; ``reclaimed`` is how often the trainer lost a node."""
    differing = [one for one in found if one.plain != one.ours]
    counts = Counter(one.plain for one in found)
    counted = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items()))
    lines = [f"{len(found)} tests; without trainers: {counted}"]
    lines.append(f"{len(found) - len(differing)} verdicts are the same with trainers")
    lines.append(f"the trainer was reclaimed {reclaimed} times")
    if differing:
        cells = [
            ("TEST", lambda one: one.test),
            (PLAIN.upper(), lambda one: one.plain),
            (OURS.upper(), lambda one: one.ours),
        ]
        lines.append(columns(differing, cells, "<<<"))
    wrong = f"{len(differing)} verdicts differ" if differing else ""
    return Findings("\n".join(lines), {"tests": found, "reclaimed": reclaimed}, wrong)


def _checked(source: Path) -> Path:
    """Return where Slurm's tests lie; refuse if not there, or those of another version."""
    tests, meta = source / "testsuite" / "expect", source / "META"
    if not (tests / "regression.py").is_file() or not meta.is_file():
        raise RefusedError(f"--source {source}: no source tree of Slurm (META, testsuite/expect)")
    if shutil.which("expect") is None:
        raise RefusedError("expect is not installed: apt-get install expect")
    found, here = _VERSION.search(meta.read_text()), installed_version()
    if found is None or (int(found[1]), int(found[2])) != here:
        raise RefusedError(f"--source {source}: not the Slurm {here[0]}.{here[1]:02} that is here")
    return tests


def _run(tests: Path, chosen: str, labs: Mapping[str, Lab]) -> list[Verdicts]:
    """Run the chosen tests on both clusters side by side; return the verdicts by their numbers.

    Raises:
        LabError: one of them did not come to its end.
    """
    running, tell = dict[str, subprocess.Popen[bytes]](), progress()
    try:
        for name, lab in labs.items():
            running[name] = _started(tests, chosen, lab)
        tails = {name: Tail(lab.dir / _SUITE, "progress") for name, lab in labs.items()}
        while any(process.poll() is None for process in running.values()):
            time.sleep(2)
            for name, tail in tails.items():
                for line in (line for _, lines in tail.read() for line in lines):
                    if line.startswith("Running test"):
                        tell(f"{name}: {line}")
    finally:
        for process in running.values():
            _end(process)
    plain, ours = (_verdicts(labs[name]) for name in (PLAIN, OURS))
    numbers = sorted(plain.keys() | ours.keys(), key=lambda one: tuple(map(int, one.split("."))))
    return [Verdicts(one, plain.get(one, "none"), ours.get(one, "none")) for one in numbers]


def _started(tests: Path, chosen: str, lab: Lab) -> subprocess.Popen[bytes]:
    suite = lab.dir / _SUITE
    shutil.copytree(tests, suite)
    common = suite / "globals"
    # Where trainers have all nodes none is idle, and each test would skip itself.
    common.write_text(common.read_text().replace(_IF_NONE_IS_IDLE, "if {0} {"))
    command = ("python3", "regression.py", "-k", "-i", chosen, "-f", _RESULTS)
    with (suite / "progress").open("wb") as output:
        return subprocess.Popen(
            command, cwd=suite, env=lab.env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the testsuite, and the test that it runs."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _verdicts(lab: Lab) -> dict[str, str]:
    try:
        found = json.loads((lab.dir / _SUITE / _RESULTS).read_text())
    except (OSError, ValueError) as error:
        raise LabError(f"{lab.dir}: the testsuite has left no results: {error}") from error
    return {one["id"]: one["status"] for one in found}


def _keep(labs: Mapping[str, Lab], test: str, kept: Path) -> None:
    """Copy what a test has printed on each cluster, and what the daemons there have logged."""
    for name, lab in labs.items():
        (kept / name).mkdir(parents=True, exist_ok=True)
        logs = (lab.dir / _SUITE).glob(f"test{test}.log*")
        for log in (*logs, lab.dir / "log" / "slurmctld.log", *lab.dir.glob("controller-*.log")):
            shutil.copy(log, kept / name)
