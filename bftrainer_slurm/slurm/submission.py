"""Turns a batch script into a trainer without any plugin, for ``bftrainer submit``.

It rewrites and refuses as ``slurm_plugin/rewrite.c`` does.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bftrainer_slurm.constraint import ConstraintError, parse_constraint
from bftrainer_slurm.elastic.element import MARKER
from bftrainer_slurm.slurm.configuration import max_job_count
from bftrainer_slurm.slurm.directives import (
    DROPPED_VARIABLES,
    REWRITTEN,
    SubmissionError,
    kept_directives,
    minutes_of,
    read_options,
    without_options,
)
from bftrainer_slurm.slurm.gateway import GatewayError, RefusedError, SlurmUnavailableError
from bftrainer_slurm.slurm.node_counts import describe, node_counts
from bftrainer_slurm.slurm.nodelists import expand_user_list
from bftrainer_slurm.slurm.per_node import WrittenOptions, has_part, part_note, tasks_and_gpus
from bftrainer_slurm.slurm.run import SlurmRunner
from bftrainer_slurm.slurm.user_array import files_of_task, only_task
from bftrainer_slurm.spec import (
    MAX_COMMENT,
    MAX_NODES,
    MAX_RECORD,
    SpecError,
    TrainerRecord,
    format_comment,
    own_comment,
    parse_spec,
    read_node_list,
    read_partitions,
    with_own_comment,
)

_LIMIT = "violates accounting/QOS policy"
_FILES = ("output", "error")
_SINGLETON = "singleton"
_DEPENDENCY = "--dependency="
_NO_ARRAY = "Invalid job array specification"
# Options that contradict a trainer, and what to do instead; the plugin is compiled from this list.
_REFUSED = dict(
    line.split(": ", 1)
    for line in (Path(__file__).parent / "refusals.txt").read_text().splitlines()
    if not line.startswith("#")
)
_UNDERSTOOD = {"array"}  # the plugin refuses it; here each task is submitted by itself
# Options that are left out, and why.
_DROPPED = {
    "time-min": "Slurm may cut a run short anyway",
    "prefer": "the plan chooses the nodes",
    "reservation": "a trainer runs on idle nodes, which belong to no reservation",
    "signal": "the limits of elements are short; SIGTERM comes when one has to end",
}


@dataclass(frozen=True, slots=True)
class Submission:
    """The options for sbatch, with the comment last, and the record that the elements carry.

    ``notes`` tell the user how the options were understood.
    """

    record: TrainerRecord
    partition: str
    options: tuple[str, ...]
    name: str = ""
    notes: tuple[str, ...] = ()
    own_rendezvous: bool = False
    no_resume: bool = False


def compose(
    script_name: str,
    directives: Mapping[str, str],
    options: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    nodes: str | None = None,
    spec: str | None = None,
    partition: str | None = None,
    time: str | None = None,
    site_partition: str | None = None,
    share: bool = False,
) -> Submission:
    """Rewrite a submission.

    Named arguments win over ``options``, these over the environment, and that over the script.

    Args:
        script_name: the job's name, unless the options have one.
        directives: the options in the script's head.
        options: further options for sbatch, as the user wrote them.
        environment: what sbatch takes from the environment.
        nodes: ``MAX`` or ``MIN-MAX``.
        spec: the value of ``--bftrainer``.
        partition: where the owner's own controller runs trainers; at a site, the only partition
            whose nodes the trainer may use.
        time: a time limit as sbatch takes it.
        site_partition: where the site's controller runs trainers; None if the trainer is for the
            owner's own controller.
        share: whether elements that ask for GPUs have parts of nodes there.

    Raises:
        SubmissionError: the submission cannot become a trainer; the message has the remedy.
    """
    script = {**directives, **(environment or {})}
    command = read_options(options) | ({"nodes": nodes} if nodes else {})
    written = WrittenOptions(script, command)
    given = written.values
    _check_options(given)
    partition, wished = _partitions(script, partition or command.get("partition"), site_partition)
    time = time or given.get("time")
    try:
        request = parse_spec(spec if spec is not None else given.get("bftrainer"))
        least, most = node_counts(given.get("nodes"), request)
        record = TrainerRecord(
            *(least, most, request.spec, _minutes(time)),
            personal=site_partition is None,
            partitions=wished,
            nodes=_node_list(given),
            sizes=tuple(size for size in request.sizes if least <= size <= most),
            step=request.step,
            task=only_task(given.get("array", "")),
            id=secrets.token_hex(4),
        )
    except SpecError as error:
        raise SubmissionError(str(error)) from error
    if request.batch == "once":
        raise SubmissionError(
            "batch=once needs BFTrainer's plugin in Slurm; submit by sbatch --bftrainer, "
            "or leave it out"
        )
    text = format_comment(record)
    if len(text) > MAX_RECORD:
        raise SubmissionError(
            "the lists of --partition and --nodelist are too long for the trainer's record; "
            "write shorter ones, as n[1-100]"
        )
    comment = with_own_comment(text, given.get("comment", ""))
    if own_comment(comment) != given.get("comment", ""):
        raise SubmissionError(
            f"--comment is too long: Slurm takes {MAX_COMMENT} characters, and the trainer's "
            f"record is {len(text) + 1} of them"
        )
    job_name = [] if "job-name" in given else [f"--job-name={script_name}"]
    limit = [f"--time={time}"] if time else []
    return Submission(
        record=record,
        partition=partition,
        # Our options come last: sbatch takes the last value of an option.
        options=(
            *job_name,
            *without_options(options, REWRITTEN),
            *limit,
            *([f"{_DEPENDENCY}{given['dependency']}"] if "dependency" in given else []),
            "--nodes=1",
            *tasks_and_gpus(written),
            f"--array=0-{record.anchor}",
            "--hold",
            f"--partition={partition}",
            "--requeue",
            "--open-mode=append",
            *([] if share and has_part(given) else ["--exclusive"]),
            "--time-min=1",
            f"--comment={comment}",
        ),
        name=given.get("job-name", script_name),
        notes=(
            describe(record) + (part_note(given) if share else ""),
            *_task_note(record),
            *(f"--{name} is left out: {why}" for name, why in _DROPPED.items() if name in given),
        ),
        own_rendezvous=request.own_rendezvous,
        no_resume=request.no_resume,
    )


def _task_note(record: TrainerRecord) -> tuple[str, ...]:
    if record.task is None:
        return ()
    return (f"SLURM_ARRAY_TASK_ID is {record.task}, the one task of --array",)


def for_task(submission: Submission, given: Mapping[str, str], task: int) -> Submission:
    """Return the submission for one task of the user's array: a trainer with its own files."""
    record = replace(submission.record, task=task, id=secrets.token_hex(4))
    *options, comment = submission.options
    own = own_comment(comment.removeprefix("--comment="))
    comment = f"--comment={with_own_comment(format_comment(record), own)}"
    files = files_of_task(given, task)
    return replace(submission, record=record, options=(*options, *files, comment))


def _check_options(given: Mapping[str, str]) -> None:
    """Refuse options and values that contradict a trainer."""
    for name, instead in _REFUSED.items():
        if name in given and name not in _UNDERSTOOD:
            raise SubmissionError(instead)
    if "constraint" in given:
        try:
            parse_constraint(given["constraint"])
        except ConstraintError as error:
            raise SubmissionError(str(error)) from error
    dependency = given.get("dependency", "")
    if _SINGLETON in dependency and "?" in dependency:
        raise SubmissionError(
            "--dependency=singleton cannot be one of several that will do; write it alone, or with "
            "commas between"
        )


def _partitions(
    script: Mapping[str, str], asked: str | None, site_partition: str | None
) -> tuple[str, tuple[str, ...]]:
    """Return the elements' partition, and the partitions to whose nodes the user restricts them.

    Without a site's partition the elements go to ``asked``, else to the script's partition.
    """
    wished = script.get("partition")
    if site_partition:
        wished = asked or wished
    partition = site_partition or asked or wished
    if not partition:
        raise SubmissionError(
            "in which partition? write -p PARTITION, one with PreemptMode=REQUEUE"
        )
    if not wished or partition in wished.split(","):
        return partition, ()
    try:
        return partition, read_partitions(wished)
    except SpecError as error:
        raise SubmissionError(f"--partition: {error}; write names with commas between") from error


def _node_list(given: Mapping[str, str]) -> str:
    if "nodelist" not in given:
        return ""
    try:
        nodes = read_node_list(given["nodelist"])
        expand_user_list(nodes)
    except ValueError as error:
        raise SubmissionError(
            f"--nodelist: {error}; write it as n[1-3,5], or leave it out"
        ) from error
    return nodes


def _minutes(time: str | None) -> int | None:
    minutes = minutes_of(time) if time else None
    if minutes is not None and minutes > MAX_NODES:
        raise SubmissionError(
            f"--time is more than {MAX_NODES // 60 // 24} days; write less, or leave it out: "
            "then an element may run for as long as the partition allows"
        )
    return minutes


def missing_folders(directives: Mapping[str, str], options: Sequence[str] = ()) -> list[str]:
    """Return a warning for each output folder that this host lacks: Slurm starts no script then."""
    given = {**directives, **read_options(options)}
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

    ``element_command`` (a line of sh) gets the submitted script's path and the user's arguments.
    It finds the user's script, unchanged, after the marker.
    """
    directives = kept_directives(user_script)
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
    _check_partitions(runner, submission.record)
    _check_size(runner, submission.record)
    # sbatch takes arguments for the script only after a file's name.
    file = ("/dev/stdin", *arguments) if arguments else ()
    options = _resolve_singleton(runner, submission)
    try:
        printed = runner.submit(
            *("sbatch", "--parsable", *options, *file),
            script=script,
            dropped=DROPPED_VARIABLES,
            # The guard of a site's plugin takes its grace from here.
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


def _resolve_singleton(runner: SlurmRunner, submission: Submission) -> list[str]:
    """Return the options, with a dependency on this name's present jobs in place of a singleton.

    With the singleton Slurm would run one element at a time.
    """
    at = next((at for at, one in enumerate(submission.options) if _SINGLETON in one), None)
    options = list(submission.options)
    if at is None or not options[at].startswith(_DEPENDENCY):
        return options
    live = "PENDING,RUNNING,SUSPENDED,CONFIGURING,COMPLETING"
    shown = ("--noheader", f"--states={live}", f"--user={os.getuid()}", "--format=%F %j")
    lines = runner.read("squeue", *shown).splitlines()
    names = (line.partition(" ") for line in lines)
    jobs = dict.fromkeys(job for job, _, name in names if name == submission.name)
    others = [
        one for one in options[at].removeprefix(_DEPENDENCY).split(",") if one != _SINGLETON
    ] + ([f"afterany:{':'.join(jobs)}"] if jobs else [])
    options[at : at + 1] = [f"{_DEPENDENCY}{','.join(others)}"] if others else []
    return options


def _check_partitions(runner: SlurmRunner, record: TrainerRecord) -> None:
    """Refuse partitions that do not exist; sbatch checks only its own option."""
    for name in record.partitions:
        try:
            runner.read("scontrol", "--all", "show", "partition", name)
        except SlurmUnavailableError:
            raise
        except GatewayError as error:
            raise RefusedError(f"--partition: there is no partition {name}") from error


def _check_size(runner: SlurmRunner, record: TrainerRecord) -> None:
    """Refuse a trainer of more than a tenth of slurmctld's job table, as the plugin does."""
    try:
        share = max_job_count(runner) // 10
    except GatewayError:  # if slurmctld limits requests, sbatch waits and may still succeed
        return
    least, most = record.min_nodes, record.max_nodes
    if most > share:
        raise RefusedError(
            f"-N {least}-{most} is more than one trainer may hold of slurmctld's job table "
            f"(MaxJobCount); write at most -N {min(least, share)}-{share}"
        )
