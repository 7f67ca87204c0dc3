"""Elements on clusters set up as sites do it: each starts, ends, and is gone once reclaimed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.5; : {mark}; done"


@dataclass(frozen=True)
class Site:
    """How a site differs from the lab's defaults: lines of slurm.conf, options of the lab.

    ``hosts`` come before the keeper's own address in the plugin's ``keeper=``.
    """

    conf: tuple[str, ...] = ()
    hosts: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Lab], None] = lambda lab: None


def write_scripts(lab: Lab) -> None:
    """A prolog and an epilog that say what of alice's they see."""
    for name in ("prolog", "epilog"):
        seen = f"{lab.dir}/log/{name}.seen"
        does = f'ps -u "$SLURM_JOB_USER" -o args= >> {seen}\necho {name} >> {seen}'
        program(lab.dir, name, does)
    for key in ("Prolog", "Epilog"):
        with (lab.dir / "slurm.conf").open("a") as conf:
            conf.write(f"{key}={lab.dir}/{key.lower()}\n")
    lab.run("scontrol", "reconfigure", user="root")


def hide_processes(lab: Lab) -> None:
    """On n1 nobody sees the processes of others."""
    daemons = json.loads((lab.dir / "lab.json").read_text())["daemons"]
    remount = ("mount", "-o", "remount,hidepid=2", "/proc")
    subprocess.run(namespaces.within(daemons["host-n1"][0], (), remount), check=True)


SITES = {
    "a prolog and an epilog": Site(prepare=write_scripts),
    "PrologFlags=Contain": Site(conf=("PrologFlags=Contain",)),
    "configless slurmds": Site(options={"configless": True}),
    "hidepid=2": Site(prepare=hide_processes),
    # A documentation address: nobody answers, and nobody refuses.
    "a keeper whose first host is dead": Site(hosts="192.0.2.1:6740,"),
}


@pytest.fixture(scope="module", params=SITES.values(), ids=list(SITES))
def lab(
    request: pytest.FixtureRequest,
    make_lab: Callable[..., Lab],
    plugins: Path,
    keeper: FakeKeeper,
    key_file: Path,
) -> Lab:
    site: Site = request.param
    if "PrologFlags=Contain" in site.conf and namespaces.hierarchy() is None:
        pytest.skip("Slurm contains jobs in cgroups alone, and this host has none to use")
    line = (
        f"optional {plugins}/bftrainer.so keeper={site.hosts}{keeper.address} local_addr=127.0.0.1"
        f" key_file={key_file}"
    )
    made = make_lab(nodes=1, plugstack=[line], kill_wait=300, conf=site.conf, **site.options)
    site.prepare(made)
    wait_until(lambda: node_state(made) == "idle")
    return made


def test_an_element_starts_and_ends(lab: Lab, keeper: FakeKeeper) -> None:
    element = start_element(lab, "#!/bin/sh\nsrun env | grep PET_NNODES\necho end\n")
    element.wait_for("end")
    element.wait_until_node_is_free()
    assert element.lines()["PET_NNODES"] == "1:2"
    wait_until(lambda: f"gone {element.array} 0 n1" in keeper.lines())


def test_an_elements_processes_ask_first_where_the_keeper_has_answered(
    lab: Lab, keeper: FakeKeeper
) -> None:
    element = start_element(lab, "#!/bin/sh\nenv | grep BFTRAINER_KEEPER\necho end\n")
    element.wait_for("end")
    assert element.lines()["BFTRAINER_KEEPER"].split(",")[0] == keeper.address
    element.wait_until_node_is_free()


def test_a_reclaimed_element_is_gone_before_the_ordinary_job_runs(lab: Lab) -> None:
    mark = f"site-{lab.dir.parent.name}"
    stubborn = STUBBORN.format(mark=mark)
    script = f'#!/bin/bash\n( setsid bash -c "{stubborn}" & )\nsrun bash -c "{stubborn}"\n'
    element = start_element(lab, script)
    wait_until(lambda: element.text().count("ready") == 2)
    assert lab.run("srun", "-N1", "-w", "n1", "echo", "here").stdout == "here\n"
    assert not processes_with(mark)
    wait_until(lambda: node_state(lab) == "idle")  # not drained
    lab.run("scancel", str(element.array), user="root")
    for seen in (lab.dir / "log").glob("epilog.seen"):
        assert "epilog" in seen.read_text()
        assert mark not in seen.read_text()
