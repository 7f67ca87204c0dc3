"""What only Slurm knows of a submission: jobs of the same name, and GPUs of the nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence

from bftrainer_slurm.submission.directives import SubmissionError

# Runs one of Slurm's commands and returns what it prints; raises NoAnswerError.
Ask = Callable[[Sequence[str]], str]

_SINGLETON = "singleton"
_LIVE = "PENDING,RUNNING,SUSPENDED,CONFIGURING,COMPLETING"
_GPUS = re.compile(r"(?:gres[:/])?gpu(?::([^:(,=]+(?=:)))?[:=](\d+)", re.ASCII)


class NoAnswerError(Exception):
    """Slurm did not answer, or refused to."""


def without_singleton(given: Mapping[str, str], ask: Ask) -> str | None:
    """Return the dependency with this name's present jobs in place of a singleton.

    With the singleton Slurm would run one element at a time. None: there is none to replace;
    "": nothing is left of the dependency.

    Raises:
        SubmissionError: the jobs are not known, or one of several dependencies would do.
    """
    clauses = given.get("dependency", "").split(",")
    if _SINGLETON not in given.get("dependency", ""):
        return None
    if any("?" in clause for clause in clauses):
        raise SubmissionError(
            "--dependency=singleton cannot be one of several that will do; write it alone, or with "
            "commas between"
        )
    user = f"--user={os.getuid()}"
    try:
        lines = ask(("squeue", "--all", "--noheader", f"--states={_LIVE}", user, "--format=%F %j"))
    except NoAnswerError as error:
        raise SubmissionError(
            "the jobs that --dependency=singleton is to wait for are not known now; write "
            "--dependency=afterany:JOB"
        ) from error
    named = (line.partition(" ") for line in lines.splitlines())
    jobs = dict.fromkeys(job for job, _, name in named if name == given["job-name"])
    after = [f"afterany:{':'.join(jobs)}"] if jobs else []
    return ",".join([one for one in clauses if one != _SINGLETON] + after)


def check_gpus(given: Mapping[str, str], partition: str, ask: Ask) -> None:
    """Refuse more GPUs of a node than any node of the trainers' partition has.

    Raises:
        SubmissionError: in one line, with what the nodes have.
    """
    for name in ("gpus-per-node", "gres"):
        wanted = _gpus(given.get(name, ""), "" if name == "gres" else "gpu:")
        if not wanted:
            continue
        try:
            format_ = ("--noheader", f"--partition={partition}", "--format=%G")
            nodes = ask(("sinfo", "--local", "--all", *format_)).splitlines()
        except NoAnswerError:
            return
        found = [_gpus(node) for node in nodes]
        if not any(found) or any(_has(node, wanted) for node in found):
            return
        kinds = sorted({f"{kind}{':' * bool(kind)}{n}" for node in found for kind, n in node})
        raise SubmissionError(
            f"--{name}={given[name][:40]}: no node of partition {partition} has these; there are "
            f"nodes with {' and with '.join(kinds)}"
        )


def _gpus(text: str, before: str = "") -> list[tuple[str, int]]:
    """Return the kinds ("" for any) and numbers in ``gpu:a100:4(S:0-1),gpu:2``."""
    parts = (before + part for part in text.split(",") if part)
    matches = filter(None, map(_GPUS.match, parts))
    return [(match[1] or "", int(match[2])) for match in matches]


def _has(node: list[tuple[str, int]], wanted: list[tuple[str, int]]) -> bool:
    """Whether a node has that many of each kind."""
    return all(count <= sum(n for of, n in node if kind in ("", of)) for kind, count in wanted)
