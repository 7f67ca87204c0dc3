"""Answers the SPANK plugin in sbatch: what to do with a tagged submission.

The plugin hands over one JSON document and carries out the answer, word by word.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer_slurm.script_paths import warnings
from bftrainer_slurm.spec import DEFAULT_MAX_GRACE_S, plain
from bftrainer_slurm.submission.directives import (
    LARGEST_SCRIPT,
    SubmissionError,
    printable,
    read_directives,
    read_options,
)
from bftrainer_slurm.submission.output_folders import missing_folders
from bftrainer_slurm.submission.per_node import WrittenOptions
from bftrainer_slurm.submission.rewrite import Asked, Rewriting, Site, rewrite
from bftrainer_slurm.submission.slurm_answers import NoAnswerError
from bftrainer_slurm.submission.user_array import only_task

Word = tuple[str, str, str]  # what to do, name, value

_COMMAND_S = 5.0  # sbatch waits 10 s for us
# Read back: without them the job would not be a trainer.
_CHECKED = ("array", "comment", "nodes", "partition", "qos")
# torchrun ends with an error that names this backend, unless the plugin on the node replaces it: so
# no node trains by itself where the plugin is missing.
_BACKEND = ("PET_RDZV_BACKEND", "bftrainer-plugin-missing-on-this-node")


@dataclass(frozen=True)
class Sbatch:
    """The process that submits: its command line, its script, and what Slurm has read of both.

    ``script`` is None if it came through a pipe and cannot be read again.
    """

    options: Mapping[str, str]
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    script: str | None
    folder: Path

    @property
    def written(self) -> WrittenOptions:
        """Options as the user wrote them.

        Slurm's own show ``4`` for 4-4, and sbatch lowers ``--nodes`` to ``--ntasks``.
        """
        command = _read(read_options, self.command[1:])
        script = None if self.script is None else _read(read_directives, self.script)
        if script is None and "nodes" not in command and "nodes" in self.options:
            return WrittenOptions({"nodes": self.options["nodes"]}, command)
        return WrittenOptions(script, command)

    def given(self, written: WrittenOptions) -> dict[str, str]:
        """The options that count."""
        names = ("nodes", "ntasks-per-node", "cpus-per-task")
        own = {name: value for name in names if (value := written.get(name)) is not None}
        name = Path(self.arguments[0]).name if self.arguments else "sbatch"
        return {"job-name": name, **self.options, **own}


def answer(document: Mapping[str, Any]) -> Iterator[Word]:
    """Yield what the plugin is to do.

    Raises:
        SubmissionError: nothing may be submitted; the message says what to write instead.
    """
    sbatch = _sbatch(document)
    written = sbatch.written
    given = sbatch.given(written)
    array = given.pop("array", None)
    task = None if array is None else only_task(array)
    if array is not None and task is None:
        raise SubmissionError(_no_array(sbatch))
    asked = Asked(given, written, document["spec"], time.time(), task)
    done = rewrite(asked, _site(document), lambda words: _ask(sbatch.folder, words))
    yield from (("set", name, value) for name, value in done.settings.items())
    yield from (("reset", name, "") for name in done.dropped)
    yield from _checks(done)
    yield from _environment(given, done)
    yield from _carried(done)
    told = (*done.notes, *missing_folders(given), *warnings(sbatch.script or "", plugin=True))
    yield from (("say", "", printable(text)) for text in told)


def encoded(words: Iterator[Word]) -> bytes:
    """Return the words of an answer as the plugin reads them; a refusal stands alone."""
    try:
        listed = list(words)
    except SubmissionError as error:
        listed = [("refuse", "", str(error))]
    texts = (text for word in (*listed, ("done", "", "")) for text in word)
    plain = (text.encode("utf-8", "surrogateescape").replace(b"\0", b"?") for text in texts)
    return b"".join(text + b"\0" for text in plain)


def main(document: bytes) -> bytes:
    """Answer one document."""
    return encoded(answer(json.loads(document.decode("utf-8", "surrogateescape"))))


def _checks(done: Rewriting) -> Iterator[Word]:
    for name in _CHECKED:
        if name in done.settings:
            yield "check", name, done.settings[name]
    yield "given", "hold", ""


def _environment(given: Mapping[str, str], done: Rewriting) -> Iterator[Word]:
    """Variables of the job, which Slurm takes from sbatch's own environment."""
    for name, value in done.environment.items():
        yield ("unset", name, "") if value is None else ("env", name, value)
    yield ("env", *_BACKEND)
    export = given.get("export", "ALL")
    # A list without ALL exports only what it names. With NIL the node reads no login environment.
    if export.upper() not in ("ALL", "NIL") and not export.upper().startswith("ALL,"):
        named = "" if export.upper() == "NONE" else f"{export},"
        yield "set", "export", named + _BACKEND[0]


def _carried(done: Rewriting) -> Iterator[Word]:
    """What slurmstepd gets, which reads no record: the most nodes, the grace, the user's task."""
    record, request = done.record, done.request
    task = "-" if record.task is None else str(record.task)
    yield "job", "BFTRAINER", f"{record.max_nodes} {plain(record.spec.grace_s)} {task}"
    if request.own_rendezvous:
        yield "job", "BFTRAINER_RENDEZVOUS", "own"
    if request.no_resume:
        yield "job", "BFTRAINER_RESUME", "no"
    if request.batch:
        yield "job", "BFTRAINER_BATCH", request.batch


def _no_array(sbatch: Sbatch) -> str:
    """Say which command makes a trainer of each task of an array."""
    own = (word for word in sbatch.command[1:] if word not in ("--bftrainer", "--parsable"))
    command = shlex.join(["bftrainer", "submit", *own, *sbatch.arguments])
    if not sbatch.arguments or not command.isprintable() or len(command) > 320:
        command = "bftrainer submit"
    return (
        f"a trainer is a job array itself; write {command}, which makes a trainer of each task of "
        "--array (or SBATCH_ARRAY_INX)"
    )


def _site(document: Mapping[str, Any]) -> Site:
    """The site's words of the plugstack line, which the plugin has checked."""
    words = dict(word.split("=", 1) for word in document["site"])
    return Site(
        words.get("partition", "bftrainer"),
        qos=words.get("qos", ""),
        share=words.get("share") == "yes",
        max_grace_s=float(words.get("max_grace", DEFAULT_MAX_GRACE_S)),
        max_array_size=document["max_array_size"],
        max_elements=int(words.get("max_elements", document["max_job_count"] // 10)),
    )


def _sbatch(document: Mapping[str, Any]) -> Sbatch:
    process = Path("/proc", str(document["pid"]))
    words = process.joinpath("cmdline").read_bytes().split(b"\0")[:-1]
    command = [os.fsdecode(word) for word in words]
    at = len(command) - document["arguments"]
    arguments = tuple(command[at:])
    wrapped = any(word.startswith("--wrap") for word in command[:at])
    path = Path(arguments[0]) if arguments else process / "fd" / "0"
    return Sbatch(
        document["options"],
        tuple(command[:at]),
        arguments,
        "" if wrapped else _script(path),
        process.joinpath("exe").readlink().parent,
    )


def _script(path: Path) -> str | None:
    if not path.is_file():
        return None
    try:
        with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return file.read(LARGEST_SCRIPT)
    except OSError:
        return None


def _read(reader: Any, words: Any) -> dict[str, str]:
    """Read what sbatch has read before; what only we cannot read, Slurm's own options show."""
    try:
        options: dict[str, str] = reader(words)
    except SubmissionError:
        return {}
    return options


def _ask(folder: Path, words: Sequence[str]) -> str:
    """Run one of the Slurm commands that are installed beside this sbatch."""
    try:
        done = subprocess.run(
            (folder / words[0], *words[1:]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_COMMAND_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoAnswerError(str(error)) from error
    return done.stdout.decode("utf-8", "replace")
