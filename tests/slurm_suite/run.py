"""Runs Slurm's own tests on clusters side by side, by the testsuite's own regression.py.

The testsuite is copied from where Slurm's source lies into each cluster's folder, never into ours.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.benchkit.command import RefusedError
from scripts.benchkit.logs import Tail
from scripts.labcluster.cluster import installed_version
from scripts.labcluster.lab import Lab

_VERSION = re.compile(r"^\s*Version:\s*(\d+)\.(\d+)", re.MULTILINE)
_IF_NONE_IS_IDLE = "if {[llength [get_nodes_by_state]] < 1} {"
_RESULTS = "results.json"
_PATIENCE_S = 30.0


class SuiteError(Exception):
    """The testsuite cannot be run; the message says why."""


@dataclass(frozen=True)
class Suite:
    """Slurm's tests on one cluster, while they run."""

    folder: Path
    process: subprocess.Popen[bytes]

    def end(self) -> None:
        """Interrupt it, and the test that it runs."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def verdicts(self) -> dict[str, str]:
        """Return pass, fail or skip by the test's number.

        Raises:
            SuiteError: it has not come to its end.
        """
        try:
            found = json.loads((self.folder / _RESULTS).read_text())
        except (OSError, ValueError) as error:
            raise SuiteError(f"{self.folder}: it has left no results: {error}") from error
        return {one["id"]: one["status"] for one in found}


@dataclass(frozen=True)
class Verdicts:
    """What became of a test without trainers, and with them: pass, fail or skip."""

    test: str
    plain: str
    ours: str

    @property
    def differs(self) -> bool:
        """Whether trainers made a difference."""
        return self.plain != self.ours


def check_source(source: Path) -> Path:
    """Return where Slurm's tests lie.

    Raises:
        RefusedError: they are not there, or of another version.
    """
    tests = source / "testsuite" / "expect"
    if not (tests / "regression.py").is_file() or not (source / "META").is_file():
        raise RefusedError(f"--source {source}: no source tree of Slurm (META, testsuite/expect)")
    found = _VERSION.search((source / "META").read_text())
    if shutil.which("expect") is None:
        raise RefusedError("expect is not installed: apt-get install expect")
    here = installed_version()
    if found is None or (int(found[1]), int(found[2])) != here:
        raise RefusedError(f"--source {source}: not the Slurm {here[0]}.{here[1]:02} that is here")
    return tests


def run_suites(
    tests: Path, chosen: str, labs: Mapping[str, Lab], tell: Callable[[str], object]
) -> dict[str, dict[str, str]]:
    """Run the chosen tests on all clusters side by side; return the verdicts of each by its name.

    Raises:
        SuiteError: one of them did not come to its end.
    """
    suites = {}
    try:
        for name, lab in labs.items():
            suites[name] = _start(tests, chosen, lab)
        tails = {name: Tail(suite.folder, "progress") for name, suite in suites.items()}
        while any(suite.process.poll() is None for suite in suites.values()):
            time.sleep(2)
            for name, tail in tails.items():
                for _, lines in tail.read():
                    _tell_all(tell, name, lines)
    finally:
        for suite in suites.values():
            suite.end()
    return {name: suite.verdicts() for name, suite in suites.items()}


def _start(tests: Path, chosen: str, lab: Lab) -> Suite:
    folder = lab.dir / "suite" / "expect"
    shutil.copytree(tests, folder)
    common = folder / "globals"
    # Where trainers have all nodes none is idle, and each test would skip itself.
    common.write_text(common.read_text().replace(_IF_NONE_IS_IDLE, "if {0} {"))
    command = ("python3", "regression.py", "-k", "-i", chosen, "-f", _RESULTS)
    with (folder / "progress").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=lab.env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    return Suite(folder, process)


def _tell_all(tell: Callable[[str], object], name: str, lines: Sequence[str]) -> None:
    for line in lines:
        if line.startswith("Running test"):
            tell(f"{name}: {line}")


def compare(plain: Mapping[str, str], ours: Mapping[str, str]) -> list[Verdicts]:
    """Return the verdicts of both, by the tests' numbers."""
    numbers = sorted(plain.keys() | ours.keys(), key=lambda one: tuple(map(int, one.split("."))))
    return [Verdicts(one, plain.get(one, "none"), ours.get(one, "none")) for one in numbers]


def keep(labs: Mapping[str, Lab], one: Verdicts, kept: Path) -> None:
    """Copy what a test has printed on each cluster, and what the daemons there have logged."""
    for name, lab in labs.items():
        folder = kept / name
        folder.mkdir(parents=True, exist_ok=True)
        logs = (lab.dir / "suite" / "expect").glob(f"test{one.test}.log*")
        for log in (*logs, lab.dir / "log" / "slurmctld.log", *lab.dir.glob("controller-*.log")):
            shutil.copy(log, folder)
