"""The command line of ``scripts/run fuzz``: what is fuzzed, for how long, and the table."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.benchkit.command import Findings, bench_command, number, progress, several
from scripts.benchkit.text import columns
from tests.fuzz.campaign import BuildError, Outcome, fuzz
from tests.fuzz.catalogue import BY_NAME


@bench_command(BuildError)
@number("--seconds", 60.0, 1, 86_400, "For each target.")
@several("--target", "names", BY_NAME, "Fuzz only this one.")
@number("--seed", 0, 0, 2**31)
def main(seconds: float, names: Sequence[str], seed: int) -> Findings:
    """Feed what parses users' and strangers' texts with inputs that nobody would send.

    Inputs are guided by coverage. Targets in C run with the address and the undefined-behaviour
    sanitizer; without clang their inputs are changed blindly. Inputs that break a target are kept
    in build/fuzz/crashes, and the exit code is 1.

    \b
    Examples:
      scripts/run fuzz --seconds 600
      scripts/run fuzz --target conversation --seconds 3600 --seed 7
    """
    tell = progress()
    outcomes = []
    for name in names:
        outcomes.append(one := fuzz(BY_NAME[name], seconds, seed))
        tell("\n".join(filter(None, (f"{name}: {one.executions:,} executions", one.said))))
    broken = [one.target for one in outcomes if one.crash is not None or one.said]
    return Findings(_table(outcomes), outcomes, f"broken: {', '.join(broken)}" if broken else "")


def _table(outcomes: Sequence[Outcome]) -> str:
    return columns(
        outcomes,
        [
            ("TARGET", lambda one: one.target),
            ("WHAT", lambda one: BY_NAME[one.target].what),
            ("EXECUTIONS", lambda one: f"{one.executions:,}"),
            ("A SECOND", lambda one: f"{one.executions / max(one.seconds, 1e-9):,.0f}"),
            ("COVERED", lambda one: "-" if one.covered is None else f"{one.covered:,}"),
            ("CRASH", lambda one: str(one.crash) if one.crash else "yes" if one.said else "-"),
        ],
        "<<>>>>",
    )
