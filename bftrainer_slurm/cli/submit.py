"""``bftrainer submit``: submits a trainer as ``sbatch --bftrainer`` does, without the plugin.

At a site with the plugin it calls that sbatch, for each task of a user's array.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from bftrainer_slurm.cli.common import NO_ANSWER, fail, fail_on, print_json
from bftrainer_slurm.cli.endpoint import Endpoint, is_working, state_option
from bftrainer_slurm.cli.options import json_option
from bftrainer_slurm.cli.site import site_file
from bftrainer_slurm.controller.settings import SettingsError
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.home import read_address
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from bftrainer_slurm.own_python import own_python
from bftrainer_slurm.script_paths import warnings
from bftrainer_slurm.slurm.gateway import GatewayError, RefusedError
from bftrainer_slurm.slurm.run import SlurmRunner
from bftrainer_slurm.slurm.submission import Submission, asking, compose, job_id, wrap_script
from bftrainer_slurm.slurm.submission import submit as submit_script
from bftrainer_slurm.spec import format_comment
from bftrainer_slurm.submission.directives import (
    LARGEST_SCRIPT,
    SubmissionError,
    read_directives,
    read_environment,
    read_options,
)
from bftrainer_slurm.submission.output_folders import missing_folders
from bftrainer_slurm.submission.user_array import UserArray, read_array

SCHEMA = 1


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-N", "--nodes", metavar="[MIN-]MAX", help="The fewest and the most nodes to use; 4 is 1-4."
)
@click.option(
    "-p",
    "--partition",
    metavar="NAME",
    help="Where your own controller runs trainers: a partition with PreemptMode=REQUEUE.",
)
@click.option(
    "-t", "--time", metavar="TIME", help="Time limit of a run on a node, written as for sbatch."
)
@click.option("--bftrainer", "spec", metavar="KEY=VALUE,...", help="For example weight=2,grace=5.")
@click.option(
    "--personal",
    is_flag=True,
    help="Submit to your own controller also where the site has one.",
)
@state_option
@json_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[SBATCH OPTIONS] SCRIPT [ARGS]")
def submit(
    personal: bool,
    state: Path | None,
    as_json: bool,
    words: tuple[str, ...],
    **given: str | None,  # as compose takes them
) -> None:
    """Submit SCRIPT as an elastic trainer; nothing needs to be installed on the cluster.

    SCRIPT is an ordinary batch script that calls 'srun torchrun ...'. Its #SBATCH lines count,
    also '#SBATCH --bftrainer' and '#SBATCH -N MIN-MAX'. Other options of sbatch can stand before
    SCRIPT, with their values after '=' (--gpus-per-node=4). Of --array=0-9 each task becomes a
    trainer. Where the site has a controller, 'sbatch --bftrainer' submits it. Else your own
    controller runs the trainer: start one with 'bftrainer controller --partition PARTITION'.

    \b
    Example:
      bftrainer submit -N 2-16 -p preempt --gpus-per-node=4 train.sh
    """
    options, script, arguments = _split(words)
    endpoint = Endpoint(state)
    with fail_on(SettingsError):
        by_plugin = not personal and state is None and site_file() is not None
    if by_plugin:
        _submit_by_plugin(options, script, arguments, as_json, **given)
        return
    runner = SlurmRunner()
    done: list[dict[str, Any]] = []
    try:
        text = _read_script(script)
        directives = read_directives(text)
        environment = read_environment(os.environ)
        asked = directives | environment | read_options(options)
        given["partition"] = given["partition"] or _own_partition(endpoint)
        array = read_array(asked["array"]) if "array" in asked else None
        for task in array.tasks if array else (None,):
            submission = compose(
                script.name,
                directives,
                options,
                environment=environment,
                task=task,
                ask=asking(runner),
                **given,
            )
            variables = _variables(submission, array, task)
            command = _element_command(submission, endpoint.folder, variables)
            job = submit_script(runner, submission, wrap_script(text, command), arguments)
            record = format_comment(submission.record)
            done.append({"array": job, "comment": record, "task": task})
            _say_submitted(job, task, as_json)
    except (SubmissionError, RefusedError) as error:
        fail(f"{error}{_submitted_so_far(done)}")
    except GatewayError as error:
        fail(f"{error}{_submitted_so_far(done)}", NO_ANSWER)
    own = read_address(endpoint.folder)
    _announce(own)
    if as_json:
        _print_json(done)
        return
    for said in (*submission.notes, *_array_notes(array), *warnings(text)):
        click.echo(f"bftrainer: {said}", err=True)
    for missing in missing_folders(asked):
        click.echo(missing, err=True)
    if own is None or not is_working(*Endpoint(state, own).read_status()):
        click.echo(
            "it is held until your controller runs; start it with: "
            f"bftrainer controller --partition {submission.partition}",
            err=True,
        )


def _submit_by_plugin(
    options: list[str],
    script: Path,
    arguments: list[str],
    as_json: bool,
    *,
    spec: str | None,
    **given: str | None,
) -> None:
    """Submit by the sbatch with the site's plugin: once, or once for each task of an array."""
    done: list[dict[str, Any]] = []
    text = _read_script(script)
    try:
        asked = read_directives(text) | read_environment(os.environ) | read_options(options)
        array = read_array(asked["array"]) if "array" in asked else None
    except SubmissionError as error:
        fail(str(error))
    words = [f"--{name}={value}" for name, value in given.items() if value]
    if spec or "bftrainer" not in asked:  # else it would hide the script's own
        words.insert(0, f"--bftrainer={spec}" if spec else "--bftrainer")
    for task in array.tasks if array else (None,):
        one = () if task is None else (f"--array={task}",)
        command = ("sbatch", "--parsable", *words, *options, *one, str(script), *arguments)
        try:
            sbatch = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            if sbatch.returncode:
                fail(f"sbatch has refused it{_submitted_so_far(done)}", sbatch.returncode)
            job = job_id(sbatch.stdout)
            comment = _comment_of(job) if as_json else ""
        except (OSError, GatewayError) as error:
            fail(f"{error}{_submitted_so_far(done)}", NO_ANSWER)
        done.append({"array": job, "comment": comment, "task": task})
        _say_submitted(job, task, as_json)
    if as_json:
        _print_json(done)
        return
    for said in _array_notes(array):
        click.echo(f"bftrainer: {said}", err=True)


def _comment_of(job: int) -> str:
    shown = SlurmRunner().read("squeue", "--noheader", "--format=%k", f"--jobs={job}")
    return (shown.splitlines() or [""])[0]


def _say_submitted(job: int, task: int | None, as_json: bool) -> None:
    if not as_json:
        click.echo(f"Submitted trainer {job}{'' if task is None else f' for task {task}'}")


def _print_json(done: list[dict[str, Any]]) -> None:
    first = {key: done[0][key] for key in ("array", "comment")}
    print_json({"schema": SCHEMA, **first, "trainers": done})


def _own_partition(endpoint: Endpoint) -> str | None:
    """Return the partition of the user's own controller, None if that does not run."""
    address = read_address(endpoint.folder)
    age_s, document = Endpoint(endpoint.state, address).read_status() if address else (0.0, None)
    if document is None or not is_working(age_s, document):
        return None
    return str(document["controller"].get("partition") or "") or None


def _variables(submission: Submission, array: UserArray | None, task: int | None) -> dict[str, str]:
    """Return what the script finds in its environment: of its task, and what the user asked for."""
    own = {"PET_RDZV_BACKEND": "c10d"} if submission.own_rendezvous else {}
    if submission.no_resume:
        own["BFTRAINER_RESUME"] = "no"
    return own if array is None or task is None else own | array.environment(task)


def _array_notes(array: UserArray | None) -> Iterator[str]:
    if array is None or len(array.tasks) == 1:
        return
    yield f"each of the {len(array.tasks)} tasks of --array is a trainer by itself"
    if array.throttle:
        yield f"%{array.throttle[:10]} of --array does not hold: the plan shares the idle nodes"


def _submitted_so_far(done: list[dict[str, Any]]) -> str:
    """Say which tasks of an array were submitted before Slurm refused one."""
    jobs = " ".join(str(one["array"]) for one in done)
    return f"; those before are submitted, to undo that: scancel {jobs}" if done else ""


def _split(words: tuple[str, ...]) -> tuple[list[str], Path, list[str]]:
    """Separate sbatch's options, the script and the script's arguments."""
    at = next((index for index, word in enumerate(words) if not word.startswith("-")), None)
    if at is None or not words[at]:
        fail("no script is given; write for example: bftrainer submit -N 2-16 train.sh")
    return list(words[:at]), Path(words[at]), list(words[at + 1 :])


def _read_script(script: Path) -> str:
    try:
        with script.open(encoding="utf-8") as file:  # as it is handed on, whatever the locale
            text = file.read(LARGEST_SCRIPT + 1)
        if len(text) > LARGEST_SCRIPT:
            fail(f"{script}: not a batch script, it has more than {LARGEST_SCRIPT // 2**20} MiB")
        return text
    except OSError as error:
        fail(
            f"{script}: {error.strerror}; a value of an sbatch option is written after '=', "
            "as in --gpus-per-node=4"
        )
    except UnicodeDecodeError:
        fail(f"{script}: not a text file")


def _element_command(submission: Submission, state: Path, variables: Mapping[str, str]) -> str:
    """Return the first command of each element: our Python, which then runs the user's script."""
    record = format_comment(submission.record)
    module = own_python("-m", "bftrainer_slurm.elastic.element")
    settings_of_script = [f"--set={name}={value}" for name, value in variables.items()]
    where = ("--state", str(state.absolute()))
    return shlex.join([*module, *where, "--record", record, *settings_of_script])


def _announce(keeper: str | None) -> None:
    if keeper is not None:
        with contextlib.suppress(KeeperError):  # the controller finds it at its next look
            KeeperClient(keeper).tell(Note(NoteKind.SUBMITTED))
