"""Elements on clusters set up as sites do it: each starts, ends, and is gone once reclaimed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.labcluster import namespaces
from scripts.labcluster.lab import Lab
from scripts.labcluster.waiting import wait_until
from tests.slurm_plugin.elements import node_state, processes_with, start_element
from tests.slurm_plugin.fake_keeper import FakeKeeper
from tests.tools import program

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.newest,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root: nodes have mounts of their own"),
]


def prepare(lab: Lab) -> None:
    """Have a prolog and an epilog that say what of alice's they see; on n1 no user sees others'."""
    for name in ("Prolog", "Epilog"):
        does = f'{{ ps -u "$SLURM_JOB_USER" -o args=; echo ran; }} >> {lab.dir}/log/{name}.seen'
        path = program(lab.dir, name, does)
        with (lab.dir / "slurm.conf").open("a") as conf:
            conf.write(f"{name}={path}\n")
    lab.run("scontrol", "reconfigure", user="root")
    daemons = json.loads((lab.dir / "lab.json").read_text())["daemons"]
    remount = ("mount", "-o", "remount,hidepid=2", "/proc")
    subprocess.run(namespaces.within(daemons["host-n1"][0], (), remount), check=True)


DEAD = "192.0.2.1:6740,"  # a documentation address: nobody answers, and nobody refuses
# Options of the lab, and the keeper's first host.
SITES = {
    "a prolog, an epilog, hidepid=2, a keeper whose first host is dead": ({}, DEAD),
    "PrologFlags=Contain": ({"conf": ["PrologFlags=Contain"]}, ""),
    "configless slurmds": ({"configless": True}, ""),
}


@pytest.fixture(scope="module", params=SITES.values(), ids=list(SITES))
def lab(
    request: pytest.FixtureRequest,
    make_lab: Callable[..., Lab],
    plugins: Path,
    keeper: FakeKeeper,
    key_file: Path,
) -> Lab:
    options, first_host = request.param
    if "conf" in options and namespaces.hierarchy() is None:
        pytest.skip("Slurm contains jobs in cgroups alone, and this host has none to use")
    line = (
        f"optional {plugins}/bftrainer.so keeper={first_host}{keeper.address} local_addr=127.0.0.1"
        f" key_file={key_file}"
    )
    made = make_lab(nodes=1, plugstack=[line], kill_wait=300, **options)
    if first_host:
        prepare(made)
    wait_until(lambda: node_state(made) == "idle")
    return made


def test_an_element_starts_asks_where_the_keeper_has_answered_and_ends(
    lab: Lab, keeper: FakeKeeper
) -> None:
    show = "env | grep BFTRAINER_KEEPER\nsrun env | grep PET_N"
    element = start_element(lab, f"#!/bin/sh\n{show}\necho end\n")
    element.wait_for("end")
    element.wait_until_node_is_free()
    found = element.lines()
    assert (found["PET_NNODES"], found["PET_NPROC_PER_NODE"]) == ("1:2", "1")
    assert found["BFTRAINER_KEEPER"].split(",")[0] == keeper.address
    wait_until(lambda: f"gone {element.array} 0 n1" in keeper.lines)


def test_a_reclaimed_element_is_gone_before_the_ordinary_job_runs(lab: Lab) -> None:
    mark = f"site-{lab.dir.parent.name}"
    stubborn = f"trap '' TERM; echo ready; while :; do sleep 0.5; : {mark}; done"
    script = f'#!/bin/bash\n( setsid bash -c "{stubborn}" & )\nsrun bash -c "{stubborn}"\n'
    element = start_element(lab, script)
    wait_until(lambda: element.text().count("ready") == 2)
    assert lab.run("srun", "-N1", "-w", "n1", "echo", "here").stdout == "here\n"
    assert not processes_with(mark)
    wait_until(lambda: node_state(lab) == "idle")  # not drained
    lab.run("scancel", str(element.array), user="root")
    for seen in (lab.dir / "log").glob("Epilog.seen"):
        assert "ran" in seen.read_text()
        assert mark not in seen.read_text()
