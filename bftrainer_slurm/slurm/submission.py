"""Turns a batch script into a trainer without any plugin, for ``bftrainer submit``.

The same rewriting and the same refusals as ``slurm_plugin/rewrite.c``.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.constraint import ConstraintError, parse_constraint
from bftrainer_slurm.elastic.element import MARKER
from bftrainer_slurm.slurm.configuration import max_job_count
from bftrainer_slurm.slurm.directives import (
    Directives,
    SubmissionError,
    header_without_ours,
    minutes_of,
    read_options,
    without,
)
from bftrainer_slurm.slurm.gateway import GatewayError, RefusedError
from bftrainer_slurm.slurm.run import SlurmRunner
from bftrainer_slurm.spec import (
    MAX_NODES,
    SpecError,
    TrainerRecord,
    format_comment,
    parse_spec,
)

_RANGE = re.compile(r"(\d{1,7})-(\d{1,7})\Z")
_LIMIT = "violates accounting/QOS policy"
_FILES = ("output", "error")
_ENDING_SIGNAL = re.compile(
    r"[RB]*:?\s*(?:(?:SIG)?(?:TERM|KILL)|0*(?:15|9))(?:@|\Z)", re.IGNORECASE
)
_NO_ARRAY = "Invalid job array specification"
# Options that contradict a trainer, and what to do instead; the plugin is compiled with them.
_REFUSED = dict(
    line.split(": ", 1)
    for line in (Path(__file__).parent / "refusals.txt").read_text().splitlines()
    if not line.startswith("#")
)


@dataclass(frozen=True, slots=True)
class Submission:
    """The options for sbatch, and the record that the elements carry."""

    record: TrainerRecord
    partition: str
    options: tuple[str, ...]


def compose(
    script_name: str,
    directives: Directives,
    options: Sequence[str] = (),
    *,
    nodes: str | None = None,
    spec: str | None = None,
    partition: str | None = None,
    time: str | None = None,
    site_partition: str | None = None,
) -> Submission:
    """Rewrite a submission. Arguments by name win over ``options``, and these over the script's.

    Args:
        script_name: the job's name, unless one is given.
        directives: the options in the script's head.
        options: further options for sbatch, as the user wrote them.
        nodes: ``MIN-MAX``.
        spec: the value of ``--bftrainer``.
        partition: where preemptible jobs run.
        time: a time limit as sbatch takes it.
        site_partition: where the site's controller runs trainers; None if only the owner's own
            controller shall run this one.

    Raises:
        SubmissionError: in one line, with the remedy.
    """
    given = directives.values | read_options(options).values
    for name, instead in _REFUSED.items():
        if name in given:
            raise SubmissionError(instead)
    if "constraint" in given:
        try:
            parse_constraint(given["constraint"])
        except ConstraintError as error:
            raise SubmissionError(str(error)) from error
    if _ENDING_SIGNAL.match(given.get("signal", "")):
        raise SubmissionError(
            "--signal=TERM and --signal=KILL would end elements at their start, since their limits "
            "are short and are lengthened later; leave --signal out"
        )
    if given.get("ntasks-per-node", "1") != "1":
        raise SubmissionError(
            "torchrun starts a node's processes; write --ntasks-per-node=1 or leave it out"
        )
    partition = partition or given.get("partition") or site_partition
    if not partition:
        raise SubmissionError(
            "in which partition? write -p PARTITION, one with PreemptMode=REQUEUE"
        )
    if site_partition not in (None, partition):
        raise SubmissionError(f"trainers run in partition {site_partition}; leave --partition out")
    time = time or given.get("time")
    least, most = _node_range(nodes or given.get("nodes"))
    try:
        wanted = parse_spec(spec if spec is not None else given.get("bftrainer")).spec
    except SpecError as error:
        raise SubmissionError(str(error)) from error
    minutes = minutes_of(time) if time else None
    if minutes is not None and minutes > MAX_NODES:
        raise SubmissionError(
            f"--time is more than {MAX_NODES // 60 // 24} days; write less, or leave it out: "
            "then an element may run for as long as the partition allows"
        )
    personal = site_partition is None
    record = TrainerRecord(least, most, wanted, minutes, personal, id=secrets.token_hex(4))
    job_name = [] if "job-name" in given else [f"--job-name={script_name}"]
    limit = [f"--time={time}"] if time else []
    return Submission(
        record=record,
        partition=partition,
        # Ours come last: for sbatch the last one of an option counts.
        options=(
            *job_name,
            *without(options, {"bftrainer"}),  # sbatch does not know it without the plugin
            *limit,
            "--nodes=1",
            "--ntasks=1",
            f"--array=0-{record.anchor}",
            "--hold",
            f"--partition={partition}",
            "--requeue",
            "--open-mode=append",
            "--exclusive",
            "--time-min=1",
            f"--comment={format_comment(record)}",
        ),
    )


def missing_folders(directives: Directives, options: Sequence[str] = ()) -> list[str]:
    """Say which folders for output are not on this host: Slurm makes none, and starts no script."""
    given = directives.values | read_options(options).values
    files = {name: Path(given.get("chdir", "."), given[name]) for name in _FILES if name in given}
    folders = {name: file.absolute().parent for name, file in files.items()}
    return [
        f"--{name}: there is no folder {folder} on this host; without it no node can start the "
        "script: mkdir -p it"
        for name, folder in folders.items()
        if "%" not in str(folder) and not folder.exists()  # only Slurm knows what %j will be
    ]


def wrap_script(user_script: str, element_command: str) -> str:
    """Return the script to submit: the user's directives, our command, then the user's script.

    ``element_command`` (a line of sh) gets the submitted script's path and the user's arguments;
    it finds the user's script, verbatim, after the marker.
    """
    directives = header_without_ours(user_script)
    head = ["#!/bin/sh", *directives, f'exec {element_command} "$0" "$@"', MARKER]
    return "\n".join(head) + "\n" + user_script


def submit(
    runner: SlurmRunner, submission: Submission, script: str, arguments: Sequence[str] = ()
) -> int:
    """Submit a wrapped script; return the array's job id.

    Raises:
        SlurmUnavailableError: slurmctld does not answer.
        RefusedError: Slurm refuses.
    """
    _check_share(runner, submission.record)
    # sbatch takes arguments for the script only after a file's name.
    file = ("/dev/stdin", *arguments) if arguments else ()
    try:
        printed = runner.submit(
            *("sbatch", "--parsable", *submission.options, *file),
            script=script,
            # Where the site's plugin guards the partition, its guard knows no other grace.
            BFTRAINER_GRACE=f"{submission.record.spec.grace_s:g}",
        )
    except RefusedError as error:
        if _LIMIT in str(error):
            counts = (
                "limits on jobs (MaxSubmitJobs) count each of a trainer's MAX nodes, and one more"
            )
            raise RefusedError(f"{error}; {counts}") from error
        if _NO_ARRAY not in str(error):
            raise
        remedy = "-N MAX is above what this cluster allows an array (MaxArraySize); ask for less"
        raise RefusedError(remedy) from error
    job = printed.strip().partition(";")[0]  # JOB[;CLUSTER]
    if not job.isdigit():
        raise GatewayError(f"sbatch answered '{printed.strip()[:80]}', not a job id")
    return int(job)


def _check_share(runner: SlurmRunner, record: TrainerRecord) -> None:
    """Refuse a trainer of more than a tenth of slurmctld's job table, as the plugin does."""
    try:
        share = max_job_count(runner) // 10
    except GatewayError:  # a slurmctld that limits requests may still answer sbatch, which waits
        return
    least, most = record.min_nodes, record.max_nodes
    if most > share:
        raise RefusedError(
            f"-N {least}-{most} is more than one trainer may hold of slurmctld's job table "
            f"(MaxJobCount); write at most -N {min(least, share)}-{share}"
        )


def _node_range(nodes: str | None) -> tuple[int, int]:
    if nodes is None:
        raise SubmissionError("how many nodes? write -N MIN-MAX, for example -N 2-16")
    match = _RANGE.match(nodes)
    if not match:
        what = "a range, not a list," if re.search("[,:]", nodes) else "a range"
        raise SubmissionError(
            f"-N {nodes[:40]}: {what} is needed; write -N MIN-MAX, for example -N 2-16"
        )
    least, most = int(match[1]), int(match[2])
    if most > MAX_NODES:
        raise SubmissionError(f"-N {nodes}: MAX is at most {MAX_NODES}")
    if not 1 <= least <= most:
        raise SubmissionError(
            f"-N {nodes}: MIN is at least 1 and not above MAX; write for example -N 2-16"
        )
    return least, most
