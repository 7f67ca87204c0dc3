"""``bftrainer doctor``: checks a cluster's settings for trainers, and says what to change."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from bftrainer_slurm.cli.common import NO_ANSWER, fail, fail_on, print_json, safe_lines
from bftrainer_slurm.cli.options import FILE, json_option
from bftrainer_slurm.cli.site import site_settings
from bftrainer_slurm.cli.terminal import styled, wrapped
from bftrainer_slurm.controller.settings import SettingsError
from bftrainer_slurm.doctor.finding import Finding, Level
from bftrainer_slurm.slurm.gateway import GatewayError, NoCommandError, SlurmUnavailableError
from bftrainer_slurm.slurm.run import SlurmRunner

SCHEMA = 1
_SOMETHING_TO_CHANGE = 1
_TRIAL_PATIENCE_S = 120.0
_MARGIN, _CHECK = 10, 24
_LEVELS: dict[Level, tuple[str, dict[str, Any]]] = {  # in the summary, and how they look
    Level.CHANGE: ("to change", {"fg": "red", "bold": True}),
    Level.CONSIDER: ("to consider", {"fg": "yellow"}),
    Level.UNKNOWN: ("unknown", {"fg": "cyan"}),
    Level.OK: ("ok", {"fg": "green"}),
}


@click.command()
@click.option(
    "--config",
    type=FILE,
    help="The controller's settings. [default: bftrainer.toml, beside slurm.conf or in "
    "/etc/bftrainer]",
)
@click.option(
    "--partition", metavar="NAME", help="The trainers' partition. [default: as in the settings]"
)
@click.option(
    "--try",
    "attempt",
    is_flag=True,
    help="Run a tiny trainer, then an ordinary job on its node; say how much later that job ended.",
)
@click.option(
    "--ordinary",
    metavar="PARTITION",
    help="With --try: the ordinary job's partition. [default: Slurm's]",
)
@json_option
def doctor(
    config: Path | None,
    partition: str | None,
    attempt: bool,
    ordinary: str | None,
    as_json: bool,
) -> None:
    """Check this cluster's settings: what to change for trainers, in which line, and why.

    For admins, before and after the installation. It asks Slurm, the keeper and this host, and
    changes nothing. The exit code is 1 if something must change.

    With --try it does not check the settings. It submits both jobs under your name, and cancels
    what is left of them at its end, also after an error.

    \b
    Examples:
      bftrainer doctor
      bftrainer doctor --try
    """
    from bftrainer_slurm.doctor.checkup import checkup
    from bftrainer_slurm.doctor.gather import gather

    if ordinary and not attempt:
        fail("--ordinary goes with --try")
    if attempt:
        _run_trial(ordinary, as_json)
        return
    with fail_on(SettingsError), fail_on(GatewayError, code=NO_ANSWER):
        findings = checkup(gather(SlurmRunner(), site_settings(config, partition=partition)))
    if as_json:
        print_json(document(findings))
    else:
        click.echo("\n".join(table(findings)))
    if any(one.level is Level.CHANGE for one in findings):
        raise SystemExit(_SOMETHING_TO_CHANGE)


def _run_trial(ordinary: str | None, as_json: bool) -> None:
    from bftrainer_slurm.doctor.trial import Trial, TrialError, run

    if "SLURM_JOB_ID" in os.environ:
        fail("the trial cannot run inside a job: run it on a login node")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it cleans up
    runner = SlurmRunner(_TRIAL_PATIENCE_S)
    say = partial(click.echo, err=as_json)
    try:
        outcome = run(Trial(runner, say, ordinary, _TRIAL_PATIENCE_S))
    except (NoCommandError, SlurmUnavailableError) as error:
        fail(str(error), NO_ANSWER)
    except (TrialError, GatewayError) as error:
        fail(str(error), _SOMETHING_TO_CHANGE)
    if as_json:
        print_json({"schema": SCHEMA, **asdict(outcome), "late_s": outcome.late_s})
    else:
        click.echo(
            f"an ordinary job on {outcome.node} took {outcome.with_trainer_s:.2f} s "
            f"with the trainer there, {outcome.without_s:.2f} s without it: "
            f"{outcome.late_s:+.2f} s"
        )


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings as JSON has them; the schema is in docs/internals/json.md."""
    counts = Counter(one.level.value for one in findings)
    return {
        "schema": SCHEMA,
        "counts": {level.value: counts[level.value] for level in Level},
        "findings": [
            {
                "check": one.check,
                "level": one.level.value,
                "found": one.found,
                "why": one.why,
                "changes": [{"file": change.file, "line": change.line} for change in one.changes],
            }
            for one in findings
        ],
    }


def table(findings: Sequence[Finding]) -> Iterator[str]:
    """Return the lines for people, the most serious findings first."""
    order = list(Level)
    for one in sorted(findings, key=lambda finding: order.index(finding.level)):
        word = styled(one.level.value.ljust(_MARGIN), **_LEVELS[one.level][1])
        found = "\n".join(wrapped(safe_lines(one.found), _MARGIN + _CHECK))
        yield f"{word}{one.check + ' ':<{_CHECK}}{found.lstrip()}"
        for change in one.changes:
            yield f"{'':<{_MARGIN}}{change.file}: {safe_lines(change.line)}"
        yield from wrapped(safe_lines(one.why), _MARGIN)
    counts = Counter(one.level for one in findings)
    yield ", ".join(f"{counts[level]} {what}" for level, (what, _) in _LEVELS.items())
