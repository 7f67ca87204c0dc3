"""The command line of ``scripts/run demo``, and what it shows while the demo runs."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from bftrainer_slurm.words import counted
from scripts.benchkit.command import Findings, bench_command, folder, json_text
from scripts.demonstration.stream import STREAM, Submitted, run_stream
from scripts.demonstration.summary import Summary, render, summary_of
from scripts.labcluster.cluster import LabError
from scripts.labcluster.site import Site, prepared_site
from scripts.labcluster.waiting import wait_until

_NODES = 8
_TRAINERS = {"A": "--bftrainer=weight=1.2", "B": "--bftrainer"}  # of 1 to 3 nodes
# In the demo holes last seconds, not minutes: the controller looks more often, less far ahead.
_SETTINGS = {"forward_time_s": 30, "queue_interval_s": 5}
_LOOK_S = 3.0  # between two lines of the live view
_HEAD_START_S = 60.0  # at most; trainers train before the stream, as on a real cluster


@bench_command(LabError, TimeoutError)
@folder(
    *("--output", "output", "For summary.json and the controller's log; emptied first."),
    default=Path("demo-output"),
)
def main(output: Path) -> Findings:
    """Show BFTrainer at work on a private Slurm cluster, which ends with it.

    The same stream of ordinary jobs runs twice, without and with two trainers.
    """
    output = output.resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    tell = lambda text: click.echo(f"{text} ...", err=True)  # noqa: E731
    with prepared_site(_NODES, kill_wait=30, tell=tell) as site:
        summary, stream = _demonstrate(site, output)
    (output / "summary.json").write_text(json_text(summary) + "\n")
    return Findings(f"{render(summary, stream)}\n\nwritten to {output}/summary.json", summary)


def _demonstrate(site: Site, output: Path) -> tuple[Summary, list[Submitted]]:
    click.echo("\nthe ordinary jobs alone (# ordinary job, . idle):", err=True)
    without = _stream(site, "without", {})
    try:
        with site.controlled(_SETTINGS):
            trainers = {letter: _submit_trainer(site, letter) for letter in _TRAINERS}
            letters = {array: letter for letter, (array, _) in trainers.items()}
            click.echo("\nthe same with two trainers, A and B, in the holes:", err=True)
            with suppress(TimeoutError):
                wait_until(lambda: _all_train(site), _HEAD_START_S)
            begin_s = time.time()
            stream = _stream(site, "with", letters)
            said = site.run("bftrainer", "status", "--keeper", site.keeper).stdout
            click.echo(f"\n{said}", err=True)
            site.end(*letters)
            time.sleep(2)  # the last elements say that they are gone
    finally:
        shutil.copy(site.controller.log, output / "controller.log")
    history = site.controller.state / "history.sqlite"
    streams = {"without": without, "with": stream}
    return summary_of(_NODES, begin_s, streams, history, trainers), stream


def _stream(site: Site, name: str, letters: Mapping[int, str]) -> list[Submitted]:
    """Run the stream; every few seconds a line shows which node does what."""
    next_s = 0.0
    form = "\r\x1b[K{}" if sys.stderr.isatty() else "{}\n"

    def tick(now_s: float) -> None:
        nonlocal next_s
        if now_s < next_s:
            return
        next_s = now_s + _LOOK_S
        waiting = site.run("squeue", "-h", "-p", "main", "-t", "PD").stdout.count("\n")
        status = site.controller.status()
        told = f"{_live_map(site, status, letters)}  {waiting} waiting  "
        told += "  ".join(_progress(status, letters))
        print(form.format(f"{now_s:5.0f} s  {told}"), end="", file=sys.stderr, flush=True)

    return run_stream(STREAM, site.folder(name=name), site.run, tick)


def _live_map(site: Site, status: Mapping[str, Any], letters: Mapping[int, str]) -> str:
    """Return a character for each node.

    ``#`` is an ordinary job, ``.`` is idle, a letter a trainer (small: it is starting); ``letters``
    has each array's. ``status`` is what the controller publishes.
    """
    shown = dict.fromkeys(site.lab.cluster.node_names, ".") | dict.fromkeys(site.lab.busy(), "#")
    for trainer in status.get("trainers", ()):
        letter = letters.get(trainer["array"], "?")
        shown |= dict.fromkeys(trainer["starting"], letter.lower())
        shown |= dict.fromkeys(trainer["nodes"], letter)
    return f"[{''.join(shown.values())}]"


def _progress(status: Mapping[str, Any], letters: Mapping[int, str]) -> Iterator[str]:
    """Yield how far each trainer is."""
    for trainer in status.get("trainers", ()):
        letter, rate = letters.get(trainer["array"], "?"), trainer["samples_per_s"]
        far = f"{trainer['samples']:,.0f} samples" if trainer["samples"] else "starting"
        count = len(trainer["nodes"])
        speed = f", {rate:,.0f}/s" if rate and count else ""  # of the last 30 s
        yield f"{letter}: {counted(count, 'node')}, {far}{speed}"


def _submit_trainer(site: Site, letter: str) -> tuple[int, Path]:
    """Submit a trainer; return its array, and the folder with its output."""
    example, folder = site.stage.repo / "examples/digits", site.folder(name=f"trainer-{letter}")
    script = (example / "train.sh").read_text()
    words = ("1-3", _TRAINERS[letter], f"--output={folder}/slurm-%a.out")
    return site.submit(script, *words, env={"FOLDER": str(folder)}, cwd=example), folder


def _all_train(site: Site) -> bool:
    trainers = site.controller.status().get("trainers", [])
    return len(trainers) == len(_TRAINERS) and all(one["samples"] for one in trainers)
