"""Who can open which GPU of a shared node, where Slurm keeps jobs from the devices of others."""

from __future__ import annotations

import json
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


def notes(file: Path) -> list[dict[str, Any]]:
    """What a job's batch script has noted, and then its step."""
    wait_until(lambda: file.exists() and file.read_text().count("\n") >= 2)
    return [json.loads(line) for line in file.read_text().splitlines()[:2]]


def opens(file: Path) -> set[str]:
    """The GPUs that a job can open: those that Slurm says are its own, and no other."""
    for note in notes(file):
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


def test_jobs_side_by_side_open_their_own_gpus_alone_and_who_takes_them_finds_nothing_of_before(
    site: Site,
) -> None:
    script, of_job = probing(site, "bob")
    job = ordinary(site, "-w", "n1", "--gpus-per-node=1", script=script)
    assert notes(of_job)
    script, of_trainer = probing(site, "alice")
    trainer = site.submit(script, "1-1", "--gpus-per-node=2", "--exclude=n2")
    assert all(note["alice"] for note in notes(of_trainer))
    assert (len(opens(of_job)), len(opens(of_trainer))) == (1, 2)
    assert not opens(of_job) & opens(of_trainer)
    script, of_taker = probing(site, "bob")
    ordinary(site, "-w", "n1", f"--gpus-per-node={len(GPUS) - 1}", script=script)
    assert opens(of_taker) == GPUS - opens(of_job)
    assert not any(note["alice"] for note in notes(of_taker))
    assert set(site.lab.squeue(trainer, "%N")) == {""}
    assert site.lab.squeue(job, "%t") == ["R"]


def test_the_doctor_sees_that_devices_are_confined_and_says_what_is_not(site: Site) -> None:
    told = json.loads(site.run("bftrainer", "doctor", "--json", user=ADMIN, check=False).stdout)
    found = {one["check"]: one["found"] for one in told["findings"]}
    assert found["share: jobs confined"] == "without ConstrainCores, ConstrainRAMSpace"
