"""Submits a trainer by sbatch and without any plugin, for ``bftrainer submit``.

What becomes of the options is decided in ``submission``, as for ``sbatch --bftrainer``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import time as now_s

from bftrainer_slurm.elastic.element import MARKER
from bftrainer_slurm.slurm.configuration import values_of
from bftrainer_slurm.slurm.gateway import GatewayError, RefusedError, SlurmUnavailableError
from bftrainer_slurm.slurm.nodelists import expand_user_list
from bftrainer_slurm.slurm.run import SlurmRunner
from bftrainer_slurm.spec import TrainerRecord
from bftrainer_slurm.submission.directives import (
    DROPPED_VARIABLES,
    REWRITTEN,
    SubmissionError,
    kept_directives,
    read_options,
    without_options,
)
from bftrainer_slurm.submission.per_node import WrittenOptions
from bftrainer_slurm.submission.rewrite import Asked, Rewriting, Site, check_size, rewrite
from bftrainer_slurm.submission.slurm_answers import Ask, NoAnswerError
from bftrainer_slurm.submission.user_array import only_task

_LIMIT = "violates accounting/QOS policy"
_NOT_OF_SBATCH = {"bftrainer", "no-requeue"}  # the plugin's own, and what --requeue contradicts
_JOB_ID = re.compile(r"(?<!\S)(\d+)(?:;\S+)?\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Submission:
    """The options for sbatch, and the record that the elements carry.

    ``notes`` tell the user how the options were understood.
    """

    record: TrainerRecord
    partition: str
    options: tuple[str, ...]
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
    task: int | None = None,
    ask: Ask = lambda words: "",
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
        partition: where the owner's own controller runs trainers.
        time: a time limit as sbatch takes it.
        task: of the user's array; None if the array has only this one, or there is none.
        ask: runs one of Slurm's commands; by default nothing is known of other jobs and of nodes.

    Raises:
        SubmissionError: the submission cannot become a trainer; the message has the remedy.
    """
    named = {"nodes": nodes, "time": time}
    command = read_options(options) | {name: one for name, one in named.items() if one}
    script = {**directives, **(environment or {})}
    given = {"job-name": script_name, **script, **command}
    array = given.pop("array", "")
    given["partition"] = script.get("partition", "")
    partition = partition or command.get("partition") or given["partition"]
    if not partition:
        raise SubmissionError(
            "in which partition? write -p PARTITION, one with PreemptMode=REQUEUE"
        )
    asked = Asked(
        given,
        WrittenOptions(script, command),
        spec if spec is not None else given.get("bftrainer"),
        now_s(),
        only_task(array) if task is None else task,
    )
    done = rewrite(asked, Site(partition, personal=True), ask)
    _check(done)
    return Submission(
        done.record,
        partition,
        # Ours come last: sbatch takes the last value of an option.
        (*without_options(options, REWRITTEN), *_words(given, named, done)),
        done.notes,
        done.request.own_rendezvous,
        done.request.no_resume,
    )


def _words(given: Mapping[str, str], named: Mapping[str, str | None], done: Rewriting) -> list[str]:
    """The options for sbatch: what is set, and what of the rewritten ones stays as it is."""
    stays = {name for name in REWRITTEN - _NOT_OF_SBATCH if name in given} - set(done.dropped)
    stays |= {"job-name"} | {name for name, one in named.items() if one}
    stays -= done.settings.keys()
    settings = {name: given[name] for name in sorted(stays)} | done.settings
    return [f"--{name}={value}" if value else f"--{name}" for name, value in settings.items()]


def _check(done: Rewriting) -> None:
    if done.request.batch == "once":
        raise SubmissionError(
            "batch=once needs BFTrainer's plugin in Slurm; submit by sbatch --bftrainer, "
            "or leave it out"
        )
    try:
        if done.record.nodes:
            expand_user_list(done.record.nodes)
    except ValueError as error:
        raise SubmissionError(
            f"--nodelist: {error}; write it as n[1-3,5], or leave it out"
        ) from error


def asking(runner: SlurmRunner) -> Ask:
    """Return what runs Slurm's commands for ``compose``."""

    def ask(words: Sequence[str]) -> str:
        try:
            return runner.read(*words)
        except GatewayError as error:
            raise NoAnswerError(str(error)) from error

    return ask


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
    _check_size(runner, submission)
    # sbatch takes arguments for the script only after a file's name.
    file = ("/dev/stdin", *arguments) if arguments else ()
    try:
        printed = runner.submit(
            *("sbatch", "--parsable", *submission.options, *file),
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
        raise
    return job_id(printed)


def job_id(printed: str) -> int:
    """Read what sbatch has printed: JOB[;CLUSTER] on the last line that ends so.

    A site's sbatch, a wrapper or a plugin may print more, before it or in the same line.

    Raises:
        GatewayError: there is no job id in it.
    """
    found = _JOB_ID.findall(printed)
    if not found:
        said = f"sbatch answered '{printed.strip()[-80:]}', without a job id"
        raise GatewayError(f"{said}: if 'squeue --me' shows the job, it was submitted")
    return int(found[-1])


def _check_partitions(runner: SlurmRunner, record: TrainerRecord) -> None:
    """Refuse partitions that do not exist; sbatch checks only its own option."""
    for name in record.partitions:
        try:
            runner.read("scontrol", "--all", "show", "partition", name)
        except SlurmUnavailableError:
            raise
        except GatewayError as error:
            raise RefusedError(f"--partition: there is no partition {name}") from error


def _check_size(runner: SlurmRunner, submission: Submission) -> None:
    """Refuse a trainer of more than a tenth of slurmctld's job table, as the plugin does."""
    try:
        values = values_of(runner)
    except GatewayError:  # if slurmctld limits requests, sbatch waits and may still succeed
        return
    site = Site(
        submission.partition,
        max_array_size=int(values["MaxArraySize"]),
        max_elements=int(values["MaxJobCount"]) // 10,
    )
    try:
        check_size(submission.record, site)
    except SubmissionError as error:
        raise RefusedError(str(error)) from error
