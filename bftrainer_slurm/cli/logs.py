"""``bftrainer logs``: what all elements of a trainer have written, and write."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from bftrainer_slurm.cli.common import NO_ANSWER, fail, fail_if_unreadable, safe
from bftrainer_slurm.cli.endpoint import Endpoint, complete, endpoint_options, find_trainer
from bftrainer_slurm.cli.status import current_status
from bftrainer_slurm.cli.tail import Tail
from bftrainer_slurm.cli.terminal import styled
from bftrainer_slurm.slurm.gateway import GatewayError, NoCommandError, SlurmUnavailableError
from bftrainer_slurm.slurm.outputs import Output, outputs_of
from bftrainer_slurm.slurm.run import SlurmRunner

SCHEMA = 1
_LOOK_EVERY_S = 0.5
_ASK_EVERY_S = 15.0  # as often as the controller asks
_LONGEST = 4_000  # characters of a line in a terminal
# Slurm writes a line with the node when it takes an element off it; srun's last lines name it, too.
_NAMES_ITS_NODE = re.compile(
    r".*\*\*\* JOB \d+ ON (\S+) CANCELLED AT |(?:srun: error: |slurmstepd-)([^\s:]+): "
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an element's output, and the node on which that was written; "" is unknown."""

    node: str
    task: int | None
    text: str


@click.command()
@click.argument("trainer", shell_complete=complete)
@click.option("-f", "--follow", is_flag=True, help="Keep showing what is written from now on.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show only the last N lines of each file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each line.")
@endpoint_options
def logs(trainer: str, follow: bool, lines: int | None, as_json: bool, endpoint: Endpoint) -> None:
    """Show what all elements of TRAINER have written, file by file, each line with its node.

    With -f it then shows what any of them writes, as it comes. TRAINER is a job id, or a name that
    only one trainer has. The files are those of --output and --error, read with your own rights.
    If Slurm has forgotten the trainer, slurm-JOBID_*.out in this folder are shown.

    \b
    Examples:
      bftrainer logs 4711 -f
      bftrainer logs resnet -n 50
    """
    array = _find_array(trainer, endpoint)
    files = _Files(_outputs(array), as_json)
    if not files.print_written(lines, last=not follow or files.over) and files.unreadable:
        fail(files.unreadable[0], NO_ANSWER)
    for trouble in files.unreadable:
        click.echo(f"bftrainer: {trouble}", err=True)
    if follow:
        _follow(files, array)


def _find_array(trainer: str, endpoint: Endpoint) -> int:
    if trainer.isascii() and trainer.isdigit() and len(trainer) < 10:
        return int(trainer)
    with fail_if_unreadable():
        return int(find_trainer(current_status(endpoint), trainer)["array"])


def _outputs(array: int) -> Sequence[Output]:
    """Return the elements' files: from Slurm, or by their usual names if it has forgotten them."""
    try:
        found: Sequence[Output] = outputs_of(SlurmRunner(), array)
    except SlurmUnavailableError as error:
        fail(str(error), NO_ANSWER)
    except GatewayError as error:
        found = [
            Output(None, (path,), over=True) for path in sorted(Path().glob(f"slurm-{array}_*.out"))
        ]
        if not found and isinstance(error, NoCommandError):
            fail(str(error), NO_ANSWER)
    if not found:
        fail(f"no trainer {array} that Slurm remembers, and no slurm-{array}_*.out in this folder")
    return found


def _follow(files: _Files, array: int) -> None:
    """Print new lines until all elements have ended and nothing more comes."""
    asked_s = time.monotonic()
    while True:
        time.sleep(_LOOK_EVERY_S)
        new = files.new_lines()
        files.print(new)
        if not new and files.over:
            return
        if time.monotonic() - asked_s > _ASK_EVERY_S:
            asked_s = time.monotonic()
            with contextlib.suppress(GatewayError):
                files.update(outputs_of(SlurmRunner(), array))


class _Files:
    """The elements' files, and how far they have been read."""

    def __init__(self, outputs: Sequence[Output], as_json: bool) -> None:
        self._as_json = as_json
        self._outputs = outputs
        self._tail = functools.cache(Tail)  # of each file
        self.unreadable: list[str] = []

    @property
    def over(self) -> bool:
        """Whether no element of the trainer runs or waits."""
        return all(one.over for one in self._outputs)

    def update(self, outputs: Sequence[Output]) -> None:
        """Note where the elements are now."""
        self._outputs = outputs or self._outputs

    def print_written(self, most: int | None, *, last: bool) -> bool:
        """Print the ``most`` last lines of each file until now; return whether there is any line.

        With ``last`` also an unfinished last line is printed.
        """
        found = False
        for lines in self._read(self._outputs, last=last):
            found = True
            self.print(lines if most is None else lines[max(0, len(lines) - most) :])
        return found

    def new_lines(self) -> list[Line]:
        """Return the lines written since the last call, in the order in which they came.

        Elements that have not run yet are left out: a large trainer has many of them.
        """
        begun = [
            one
            for one in self._outputs
            if one.node or one.task is None or any(self._tail(path).changed_s for path in one.paths)
        ]
        return [line for lines in self._read(begun) for line in lines]

    def print(self, lines: Iterable[Line]) -> None:
        """Print lines."""
        for line in lines:
            click.echo(_as_json(line) if self._as_json else _as_text(line))

    def _read(self, outputs: Iterable[Output], *, last: bool = False) -> Iterator[list[Line]]:
        """Yield the new lines of each file that has any."""
        for output in outputs:
            for path in output.paths:
                try:
                    lines = self._tail(path).lines(last=last)
                except OSError as error:
                    trouble = f"{safe(path, 200)}: {error.strerror}"
                    if trouble not in self.unreadable:
                        self.unreadable.append(trouble)
                    continue
                if lines:
                    yield _with_nodes(lines, output)


def _with_nodes(lines: Sequence[str], output: Output) -> list[Line]:
    """Return the lines with their nodes: the next one that is named, at the end the element's."""
    node, found = output.node, []
    for text in reversed(lines):
        if match := _NAMES_ITS_NODE.match(text):
            node = match[1] or match[2]
        found.append(Line(node, output.task, text))
    return found[::-1]


def _as_json(line: Line) -> str:
    document = {"schema": SCHEMA, "node": line.node or None, "task": line.task, "text": line.text}
    return json.dumps(document)


def _as_text(line: Line) -> str:
    """Return a line with its node, made safe for a terminal."""
    label = safe(line.node) or ("?" if line.task is None else f"#{line.task}")
    text = line.text
    if sys.stdout.isatty():
        text = safe(text.rstrip("\r").rpartition("\r")[2].expandtabs(), _LONGEST)
    return f"{styled(label.ljust(8), fg='cyan')} {text}".rstrip()
