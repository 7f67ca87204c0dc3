"""The command line of ``scripts/run demo``: two trainers on a private Slurm cluster."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

import click

from scripts.benchkit.command import Findings, bench_command, json_text
from scripts.demonstration.live import LiveView
from scripts.demonstration.stream import STREAM, Submitted, run_stream
from scripts.demonstration.summary import Summary, render, summary_of
from scripts.labcluster.cluster import LabError
from scripts.labcluster.site import Site, prepared_site
from scripts.labcluster.waiting import wait_until

_NODES = 8
_TRAINERS = {"A": ("--bftrainer=weight=1.2", "1-3"), "B": ("--bftrainer", "1-3")}
# Holes last seconds in the demo, not minutes: look more often, and less far ahead.
_SETTINGS = {"forward_time_s": 30, "queue_interval_s": 5}
_HEAD_START_S = 60.0  # at most: trainers train before the stream begins, as on a real cluster


@bench_command(LabError, TimeoutError)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-output"),
    help="For summary.json and the controller's log; emptied first.",
)
def main(output: Path) -> Findings:
    """Show BFTrainer at work on a private Slurm cluster, which ends with it.

    The same stream of ordinary jobs runs twice, without and with two trainers.
    """
    output = output.resolve()
    if output.exists():
        shutil.rmtree(output)
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
            folders = {letter: site.folder(name=f"trainer-{letter}") for letter in _TRAINERS}
            arrays = {one: _submit_trainer(site, folders[one], *_TRAINERS[one]) for one in folders}
            click.echo("\nthe same with two trainers, A and B, in the holes:", err=True)
            with suppress(TimeoutError):
                wait_until(lambda: _all_train(site), _HEAD_START_S)
            begin_s = time.time()
            stream = _stream(site, "with", {array: letter for letter, array in arrays.items()})
            said = site.run("bftrainer", "status", "--keeper", site.keeper).stdout
            click.echo(f"\n{said}", err=True)
            site.end(*arrays.values())
            time.sleep(2)  # the last elements say that they are gone
    finally:
        shutil.copy(site.controller.log, output / "controller.log")
    history = site.controller.state / "history.sqlite"
    trainers = {letter: (array, folders[letter]) for letter, array in arrays.items()}
    streams = {"without": without, "with": stream}
    return summary_of(_NODES, begin_s, streams, history, trainers), stream


def _stream(site: Site, name: str, letters: dict[int, str]) -> list[Submitted]:
    live = LiveView([f"n{number}" for number in range(1, _NODES + 1)], letters)

    def tick(now_s: float) -> None:
        if live.due(now_s):
            waiting = site.run("squeue", "-h", "-p", "main", "-t", "PD").stdout.splitlines()
            live.show(now_s, set(site.lab.busy()), len(waiting), site.controller.status())

    return run_stream(STREAM, site.folder(name=name), site.run, tick)


def _submit_trainer(site: Site, folder: Path, tag: str, nodes: str) -> int:
    example = site.stage.repo / "examples" / "digits"
    options = (tag, f"--output={folder}/slurm-%a.out")
    script = (example / "train.sh").read_text()
    return site.submit(script, nodes, *options, env={"FOLDER": str(folder)}, cwd=example)


def _all_train(site: Site) -> bool:
    trainers = site.controller.status().get("trainers", [])
    return len(trainers) == len(_TRAINERS) and all(one["samples"] for one in trainers)
