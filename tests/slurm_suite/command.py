"""The command line of ``scripts/run slurm-suite``."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
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
from scripts.benchkit.text import columns
from scripts.labcluster.cluster import LabError
from scripts.labcluster.lab import started_lab
from scripts.labcluster.site import started_site
from scripts.labcluster.waiting import wait_until
from tests.slurm_suite.run import SuiteError, Verdicts, check_source, compare, keep, run_suites

_SELECTION = re.compile(r"(\d+|\*)\.(\d+|\*)(,(\d+|\*)\.(\d+|\*))*")

# Options and behaviour of srun, scontrol, sinfo, squeue, scancel, salloc and sbatch.
TESTS = "1.*,2.*,3.*,4.*,5.*,6.*,15.*,17.*"
PLAIN, OURS = "without", "with"
_HOLDS = "#!/bin/bash\nsrun sleep 100000\n"


@bench_command(LabError, TimeoutError, SuiteError)
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
    suite = check_source(source)
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
        verdicts = run_suites(suite, tests, labs, progress())
        found = compare(verdicts[PLAIN], verdicts[OURS])
        for one in found:
            if one.differs:
                keep(labs, one, kept.resolve())
        reclaimed = site.controller.trainer(array)["reclaimed"]
    return findings(found, reclaimed)


def findings(found: Sequence[Verdicts], reclaimed: int) -> Findings:
    """Return what there is to say; ``reclaimed`` is how often the trainer lost a node."""
    differing = [one for one in found if one.differs]
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
    document = {"tests": found, "reclaimed": reclaimed}
    return Findings("\n".join(lines), document, wrong)
