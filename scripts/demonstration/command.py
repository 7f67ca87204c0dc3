"""The command line of ``scripts/run demo``, and what it shows while the demo runs."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bftrainer_slurm.words import counted
from scripts.benchkit.command import Findings, bench_command, folder, json_text
from scripts.demonstration.stream import (
    SHARED_STREAM,
    STREAM,
    OrdinaryJob,
    Submitted,
    run_stream,
)
from scripts.demonstration.summary import Summary, render, summary_of
from scripts.labcluster.cluster import LabError
from scripts.labcluster.site import Site, prepared_site
from scripts.labcluster.waiting import wait_until


@dataclass(frozen=True)
class Scene:
    """What the demo plays: a cluster, its ordinary jobs, and two trainers by their letters.

    Of each trainer: its nodes, its options, and how many GPUs an element has; 0: whole nodes.
    """

    nodes: int
    gpus: int  # of a node; 0: whole nodes
    stream: Sequence[OrdinaryJob]
    trainers: Mapping[str, tuple[str, str, int]]


_WHOLE = Scene(
    8, 0, STREAM, {"A": ("1-3", "--bftrainer=weight=1.2", 0), "B": ("1-3", "--bftrainer", 0)}
)
_SHARED = Scene(
    2, 8, SHARED_STREAM, {"A": ("1-2", "--bftrainer", 2), "B": ("1-2", "--bftrainer", 1)}
)
_GRES_USED = re.compile(r"NodeName=(\S+) .* GresUsed=gpu:a100:(\d+)")
# In the demo holes last seconds, not minutes: the controller looks more often, less far ahead.
_SETTINGS = {"forward_time_s": 30, "queue_interval_s": 5}
_LOOK_S = 3.0  # between two lines of the live view
_HEAD_START_S = 60.0  # at most; trainers train before the stream, as on a real cluster


@bench_command(LabError, TimeoutError)
@folder(
    *("--output", "output", "For summary.json and the controller's log; emptied first."),
    default=Path("demo-output"),
)
@click.option("--gpus", is_flag=True, help="Two nodes of eight GPUs (empty files) that jobs share.")
def main(output: Path, gpus: bool) -> Findings:
    """Show BFTrainer at work on a private Slurm cluster, which ends with it.

    The same stream of ordinary jobs runs twice, without and with two trainers.
    """
    scene = _SHARED if gpus else _WHOLE
    output = output.resolve()
    if output.exists():
        shutil.rmtree(output)
    output.mkdir(parents=True)
    tell = lambda text: click.echo(f"{text} ...", err=True)  # noqa: E731
    lab = {"kill_wait": 30, "tell": tell, "gpus": scene.gpus, "share": gpus}
    with prepared_site(scene.nodes, **lab) as site:
        summary, stream = _demonstrate(site, scene, output)
    (output / "summary.json").write_text(json_text(summary) + "\n")
    return Findings(f"{render(summary, stream)}\n\nwritten to {output}/summary.json", summary)


def _demonstrate(site: Site, scene: Scene, output: Path) -> tuple[Summary, list[Submitted]]:
    click.echo("\nthe ordinary jobs alone (# ordinary job, . idle):", err=True)
    without = _stream(site, scene, "without", {})
    try:
        with site.controlled(_SETTINGS):
            folders = {letter: site.folder(name=f"trainer-{letter}") for letter in scene.trainers}
            arrays = {
                one: _submit_trainer(site, folders[one], *scene.trainers[one]) for one in folders
            }
            click.echo("\nthe same with two trainers, A and B, in the holes:", err=True)
            with suppress(TimeoutError):
                wait_until(lambda: _all_train(site), _HEAD_START_S)
            begin_s = time.time()
            letters = {array: letter for letter, array in arrays.items()}
            stream = _stream(site, scene, "with", letters)
            said = site.run("bftrainer", "status", "--keeper", site.keeper).stdout
            click.echo(f"\n{said}", err=True)
            site.end(*arrays.values())
            time.sleep(2)  # the last elements say that they are gone
    finally:
        shutil.copy(site.controller.log, output / "controller.log")
    history = site.controller.state / "history.sqlite"
    trainers = {
        letter: (array, folders[letter], max(1, scene.trainers[letter][2]))
        for letter, array in arrays.items()
    }
    streams = {"without": without, "with": stream}
    summary = summary_of(scene.nodes, scene.gpus, begin_s, streams, history, trainers)
    return summary, stream


def _stream(site: Site, scene: Scene, name: str, letters: Mapping[int, str]) -> list[Submitted]:
    """Run the stream; every few seconds a line shows which node, or which GPU, does what."""
    next_s = 0.0
    form = "\r\x1b[K{}" if sys.stderr.isatty() else "{}\n"

    def tick(now_s: float) -> None:
        nonlocal next_s
        if now_s < next_s:
            return
        next_s = now_s + _LOOK_S
        waiting = site.run("squeue", "-h", "-p", "main", "-t", "PD").stdout.count("\n")
        status = site.controller.status()
        busy = _gpus_used(site) if scene.gpus else dict.fromkeys(site.lab.busy(), 1)
        told = f"{live_map(scene, busy, status, letters)}  {waiting} waiting  "
        told += "  ".join(progress(status, letters))
        print(form.format(f"{now_s:5.0f} s  {told}"), end="", file=sys.stderr, flush=True)

    return run_stream(scene.stream, site.folder(name=name), site.run, tick)


def _gpus_used(site: Site) -> dict[str, int]:
    shown = site.run("scontrol", "-o", "show", "node", "-d").stdout
    return {node: int(count) for node, count in _GRES_USED.findall(shown)}


def live_map(
    scene: Scene, busy: Mapping[str, int], status: Mapping[str, Any], letters: Mapping[int, str]
) -> str:
    """Return a character for each node, or for each of its GPUs.

    ``#`` is an ordinary job, ``.`` is idle, a letter a trainer (small: it is starting); ``letters``
    has each array's. ``busy`` has how much of each node jobs have, trainers among them. ``status``
    is what the controller publishes.
    """
    ours: dict[str, str] = defaultdict(str)
    for trainer in status.get("trainers", ()):
        letter = letters.get(trainer["array"], "?")
        part = max(1, scene.trainers[letter][2]) if letter in scene.trainers else 1
        for node in {*trainer["starting"], *trainer["nodes"]}:
            ours[node] += part * (letter if node in trainer["nodes"] else letter.lower())
    names = [f"n{number}" for number in range(1, scene.nodes + 1)]
    size = max(1, scene.gpus)
    cells = [
        (ours[name] + "#" * (busy.get(name, 0) - len(ours[name]))).ljust(size, ".")[:size]
        for name in names
    ]
    return f"[{('|' if scene.gpus else '').join(cells)}]"


def progress(status: Mapping[str, Any], letters: Mapping[int, str]) -> Iterator[str]:
    """Yield how far each trainer is."""
    for trainer in status.get("trainers", ()):
        letter, rate = letters.get(trainer["array"], "?"), trainer["samples_per_s"]
        far = f"{trainer['samples']:,.0f} samples" if trainer["samples"] else "starting"
        count = len(trainer["nodes"])
        speed = f", {rate:,.0f}/s" if rate and count else ""  # of the last 30 s
        yield f"{letter}: {counted(count, 'node')}, {far}{speed}"


def _submit_trainer(site: Site, folder: Path, nodes: str, tag: str, gpus: int) -> int:
    example = site.stage.repo / "examples" / "digits"
    options = (tag, f"--output={folder}/slurm-%a.out", *[f"--gpus-per-node={gpus}"] * bool(gpus))
    script = (example / "train.sh").read_text()
    return site.submit(script, nodes, *options, env={"FOLDER": str(folder)}, cwd=example)


def _all_train(site: Site) -> bool:
    trainers = site.controller.status().get("trainers", [])
    return len(trainers) == len(_WHOLE.trainers) and all(one["samples"] for one in trainers)
