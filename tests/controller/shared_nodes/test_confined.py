"""Who can open which GPU of a shared node, where Slurm keeps jobs from the devices of others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.labcluster import gpus
from scripts.labcluster.lab import ADMIN
from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until
from tests.controller.shared_nodes import conftest
from tests.controller.sites import ordinary

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1500)]

GPUS = {f"gpu{number}" for number in range(conftest.GPUS)}
# Notes what open() says of each GPU, what Slurm told of them, and which processes alice has.
PROBE = """
import errno, json, os, sys
from pathlib import Path


def answer(gpu):
    try:
        os.close(os.open(gpu, os.O_RDWR))
    except OSError as error:
        return errno.errorcode[error.errno]


note = {
    "answers": {gpu.name: answer(gpu) for gpu in Path(sys.argv[1]).glob("gpu?")},
    "own": os.environ.get("SLURM_JOB_GPUS"),
    "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    "alice": [line for line in os.popen("ps -u alice -o stat=,args=") if line[0] != "Z"],
}
with open(sys.argv[2], "a") as notes:
    print(json.dumps(note), file=notes)
"""


@dataclass(frozen=True)
class Job:
    """An ordinary job or a trainer; its batch script writes a note, and then its step."""

    number: int
    file: Path

    @property
    def notes(self) -> list[dict[str, Any]]:
        wait_until(lambda: self.file.exists() and self.file.read_text().count("\n") >= 2)
        return [json.loads(line) for line in self.file.read_text().splitlines()[:2]]

    @property
    def opens(self) -> set[str]:
        """The GPUs that it can open: those that Slurm says are its own, and no other."""
        for note in self.notes:
            can = {gpu for gpu, answer in note["answers"].items() if answer == "ENXIO"}
            assert note["answers"] == {gpu: "ENXIO" if gpu in can else "EPERM" for gpu in GPUS}
            assert can == {f"gpu{number}" for number in note["own"].split(",")}
            assert note["visible"] == ",".join(map(str, range(len(can))))  # of those, from 0 up
        return can


@pytest.fixture(scope="module", autouse=True)
def probe(site: Site) -> None:
    if (why := gpus.obstacle()) is not None:
        pytest.skip(why)
    (site.lab.dir / "probe.py").write_text(PROBE)


def probing(site: Site, user: str) -> tuple[str, Path]:
    """Return a script, and the file for its two notes."""
    file = site.folder(user) / "notes"
    probe = f"python3 {site.lab.dir}/probe.py {site.lab.dir} {file}"
    return f"#!/bin/bash\n{probe}\nsrun {probe}\nsrun sleep 1000\n", file


def ordinary_job(site: Site, gpus: int) -> Job:
    script, file = probing(site, "bob")
    return Job(ordinary(site, "-w", "n1", f"--gpus-per-node={gpus}", script=script), file)


def test_jobs_side_by_side_open_their_own_gpus_alone_and_who_takes_them_finds_nothing_of_before(
    site: Site,
) -> None:
    job = ordinary_job(site, 1)
    assert job.notes
    script, file = probing(site, "alice")
    trainer = Job(site.submit(script, "1-1", "--gpus-per-node=2", "--exclude=n2"), file)
    assert all(note["alice"] for note in trainer.notes)
    assert (len(job.opens), len(trainer.opens)) == (1, 2)
    assert not job.opens & trainer.opens
    taker = ordinary_job(site, len(GPUS) - 1)
    assert taker.opens == GPUS - job.opens
    assert not any(note["alice"] for note in taker.notes)
    assert set(site.lab.squeue(trainer.number, "%N")) == {""}
    assert site.lab.squeue(job.number, "%t") == ["R"]


def test_the_doctor_sees_that_devices_are_confined_and_says_what_is_not(site: Site) -> None:
    told = json.loads(site.run("bftrainer", "doctor", "--json", user=ADMIN, check=False).stdout)
    found = {one["check"]: one["found"] for one in told["findings"]}
    assert found["share: jobs confined"] == "without ConstrainCores, ConstrainRAMSpace"
