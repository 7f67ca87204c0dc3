"""Runs the examples on a private Slurm cluster, and shows what they print."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import click

from scripts.benchkit.command import Findings, bench_command
from scripts.labcluster.cluster import LabError
from scripts.labcluster.site import Site, started_site
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until

# Small enough for nodes that share the processors of one host.
_TRAINERS = {"images": "--steps 150 --save-every-s 2", "language": "--samples 3200"}
_PATIENCE_S = 1200.0


@bench_command(LabError, TimeoutError)
@click.argument("names", nargs=-1, metavar="[EXAMPLE]...")
def main(names: Sequence[str]) -> Findings:
    """Run the examples on a private Slurm cluster, as their READMEs say, all unless some are named.

    A node is taken from each trainer and given back while it trains; the search has ten trainers.
    """
    times_s = {}
    with started_site(nodes=4) as site:
        for name in names or (*_TRAINERS, "search"):
            begin_s = time.monotonic()
            (_search if name == "search" else _train)(site, _copied(site, name), name)
            times_s[name] = time.monotonic() - begin_s
    return Findings("\n".join(f"{name}: {s:.0f} s" for name, s in times_s.items()), times_s)


def _copied(site: Site, name: str) -> Path:
    """Return a user's own copy of an example."""
    folder = site.folder(name=name)
    shutil.copy(REPO / "LICENSE", folder)  # what the language model learns to write
    _shell(site, folder, f"cp {site.stage.repo}/examples/{name}/*.* .")
    return folder


def _shell(site: Site, folder: Path, words: str) -> str:
    command = f"cd {folder} && {words}"
    return str(site.run("bash", "-c", command, timeout_s=_PATIENCE_S).stdout)


def _train(site: Site, folder: Path, name: str) -> None:
    words = f"TEXT=LICENSE sbatch --parsable -N1-3 train.sh {_TRAINERS[name]}"
    array = int(_shell(site, folder, words))
    wait_until(lambda: len(site.controller.trainer(array)["nodes"]) == 3, _PATIENCE_S)
    _shell(site, folder, "srun -N2 --exclusive sleep 3")
    wait_until(lambda: site.controller.trainer(array)["state"] == "finished", _PATIENCE_S)
    click.echo(
        _shell(site, folder, f"bftrainer show {array}; grep -hE '^(seen|step)=|^bftrainer:' *.out")
    )


def _search(site: Site, folder: Path, _: str) -> None:
    python = site.stage.repo / ".venv" / "bin" / "python"
    click.echo(_shell(site, folder, f"{python} search.py --every-s 2"))
