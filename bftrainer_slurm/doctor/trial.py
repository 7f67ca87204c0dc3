"""A first trial: runs a tiny trainer and an ordinary job on its node; measures that job's delay.

All jobs of the trial have one name. All jobs of this name are cancelled, however the trial ends.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from bftrainer_slurm.slurm.gateway import GatewayError
from bftrainer_slurm.slurm.run import SlurmRunner
from bftrainer_slurm.spec import is_trainer_comment

_POLL_S = 1.0
# It fails if the node lacks the plugin; then the trial says so.
_SCRIPT = '#!/bin/sh\n[ -n "$BFTRAINER_ELEMENT" ] && exec sleep 600\n'


class TrialError(Exception):
    """The trial failed; the message says at which step, and what to check."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Times on one node, in seconds. ``started_s``: from the submission until the trainer ran."""

    node: str
    started_s: float
    with_trainer_s: float
    without_s: float

    @property
    def late_s(self) -> float:
        """How much later the ordinary job ended because of the trainer."""
        return self.with_trainer_s - self.without_s


@dataclass(frozen=True, slots=True)
class Trial:
    """How to run a trial; ``say`` prints each step, ``ordinary`` is the partition of the job."""

    runner: SlurmRunner
    say: Callable[[str], None]
    ordinary: str | None = None
    patience_s: float = 120.0
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def run(trial: Trial) -> Outcome:
    """Run the trial, and clean up after it in any case.

    Raises:
        TrialError: the trainer did not run, or did not end.
        GatewayError: Slurm does not answer, or refuses.
    """
    name = f"bftrainer-try-{secrets.token_hex(4)}"
    try:
        outcome = _run_jobs(trial, name)
    except BaseException:
        with suppress(GatewayError):  # the first error is the one to report
            _cancel(trial, name)
        raise
    _cancel(trial, name)
    return outcome


def _run_jobs(trial: Trial, name: str) -> Outcome:
    began_s = trial.monotonic()
    output = trial.runner.submit(
        *("sbatch", "--bftrainer", "-N1-1", "--time=10", f"--job-name={name}"),
        *("--output=/dev/null", "--chdir=/"),
        script=_SCRIPT,
    )
    trial.say(" ".join(output.split()))
    _check_comment(trial, name)
    node = _wait(trial, "R", name)
    started_s = trial.monotonic() - began_s
    trial.say(f"it runs on {node} after {started_s:.1f} s; now an ordinary job on that node")
    with_trainer_s = _ordinary_job(trial, name, node)
    _cancel(trial, name)
    _wait(trial, "", name)
    trial.say("the trainer is gone; now the same job once more")
    return Outcome(node, started_s, with_trainer_s, _ordinary_job(trial, name, node))


def _check_comment(trial: Trial, name: str) -> None:
    """Raise TrialError if the trainer came to Slurm without its record."""
    words = ("-h", "--me", f"--name={name}", "-o", "%k")
    comments = trial.runner.read("squeue", *words).splitlines()
    if comments and not any(map(is_trainer_comment, comments)):
        raise TrialError(
            "the trainer's record is not in the job's comment: a job_submit plugin of the site "
            "(JobSubmitPlugins) replaces comments, and has to keep what is there"
        )


def _ordinary_job(trial: Trial, name: str, node: str) -> float:
    """Return how long an ordinary job takes that gets the whole node and does nothing."""
    where = [f"--partition={trial.ordinary}"] if trial.ordinary else []
    began_s = trial.monotonic()
    trial.runner.submit(
        *("srun", *where, "-N1", f"--nodelist={node}", "--exclusive", "--time=1", "--quiet"),
        *(f"--job-name={name}", "--chdir=/", "true"),
        script="",
    )
    return trial.monotonic() - began_s


def _wait(trial: Trial, state: str, name: str) -> str:
    """Wait for an element in this state and return its node; "" waits until no element is left."""
    until_s = trial.monotonic() + trial.patience_s
    while trial.monotonic() < until_s:
        output = trial.runner.read("squeue", "-h", "--me", "-r", f"--name={name}", "-o", "%t %N")
        found = [line.split() for line in output.splitlines()]
        if not state and not found:
            return ""
        for words in found:
            if words[0] == state and len(words) > 1:
                return words[1]
        trial.sleep(_POLL_S)
    if not state:
        raise TrialError(f"the trainer was cancelled and is still there: squeue --name={name}")
    raise TrialError(
        f"no trainer ran within {trial.patience_s:g} s: is there an idle node, is the plugin on "
        "it, and does the controller answer? See 'bftrainer status'"
    )


def _cancel(trial: Trial, name: str) -> None:
    trial.runner.change("scancel", "--me", f"--name={name}")
