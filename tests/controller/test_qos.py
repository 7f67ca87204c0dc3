"""A cluster that accounts and preempts by QOS (slurmdbd, preempt/qos)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from scripts.labcluster.site import Site, started_site
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until
from tests.slurm_plugin.conftest import WAYS

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.timeout(1500)]
KILL_WAIT_S = 120
IDLE = "#!/bin/bash\nsleep 1000\n"
ADMIN = "root" if os.getuid() == 0 else "alice"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(nodes=2, qos=True, kill_wait=KILL_WAIT_S) as running:
        yield running


def nodes_of(site: Site, array: int) -> int:
    return len(site.controller.trainer(array)["nodes"])


def qos_of(site: Site, job: int) -> set[str]:
    return set(site.lab.squeue(job, "%q"))


def change_qos(site: Site, limit: str) -> None:
    site.lab.run("sacctmgr", "-i", "modify", "qos", "normal", "set", limit, user=ADMIN)


def configured(site: Site, way: str) -> dict[str, str]:
    """Return the environment of an sbatch that rewrites submissions in one of the two ways."""
    if way == "spank":
        return {}
    folder = site.lab.dir / way
    folder.mkdir()
    plugstack = (site.lab.dir / "plugstack.conf").read_text().strip() + " rewrite=cli_filter\n"
    (folder / "plugstack.conf").write_text(plugstack)
    conf = (site.lab.dir / "slurm.conf").read_text()
    conf = conf.replace(f"{site.lab.dir}/plugstack.conf", f"{folder}/plugstack.conf")
    conf += "CliFilterPlugins=cli_filter/lua\n"
    shutil.copy(REPO / "slurm_plugin" / "cli_filter.lua", folder / "cli_filter.lua")
    (folder / "slurm.conf").write_text(conf)
    return {"SLURM_CONF": str(folder / "slurm.conf")}


@pytest.mark.parametrize("way", WAYS)
def test_a_trainer_is_in_the_qos_of_trainers(site: Site, way: str) -> None:
    environment = configured(site, way)
    submitted = site.lab.run(
        *("sbatch", "--parsable", "--bftrainer", "-N1-2", "-o/dev/null"),
        input=IDLE,
        env=environment,
    )
    job = int(submitted.stdout)
    assert qos_of(site, job) == {"bftrainer"}
    refused = site.lab.run(
        *("sbatch", "--bftrainer", "--qos=normal", "-N1-2"),
        input=IDLE,
        env=environment,
        check=False,
    )
    assert "leave --qos out" in refused.stderr
    assert refused.returncode != 0
    site.end(job)


def test_an_ordinary_job_takes_a_trainers_node_and_the_trainer_comes_back(site: Site) -> None:
    array = site.submit(IDLE, "1-2")
    wait_until(lambda: nodes_of(site, array) == 2)
    site.lab.run("srun", "-N1", "--exclusive", "sleep", "2", user="bob")
    wait_until(lambda: site.controller.trainer(array)["reclaimed"] == 1)
    wait_until(lambda: nodes_of(site, array) == 2)
    site.end(array)


def test_whatever_is_in_the_qos_of_trainers_gives_its_node_back_at_once(site: Site) -> None:
    output = site.folder() / "stubborn.out"
    stubborn = "#!/bin/bash\ntrap '' TERM\necho ready\nwhile :; do sleep 0.5; done\n"
    options = ("-p", "main", "-q", "bftrainer", "-N1", "--exclusive", f"-o{output}")
    job = site.lab.sbatch(*options, script=stubborn, env={"SLURM_JOB_QOS": "normal"})
    wait_until(lambda: output.exists() and "ready" in output.read_text())
    site.lab.run("srun", "-N2", "--exclusive", "true", user="bob", timeout_s=KILL_WAIT_S - 30)
    site.end(job)


def test_trainers_do_not_count_against_the_limits_of_their_users_ordinary_jobs(site: Site) -> None:
    change_qos(site, "MaxSubmitJobsPerUser=1")
    try:
        array = site.submit(IDLE, "1-2")
        job = site.lab.sbatch("-N1", "-o", "/dev/null", script="#!/bin/sh\nsleep 1000\n")
        refused = site.lab.run("sbatch", "-N1", "--wrap", "true", check=False)
        assert "QOSMaxSubmitJobPerUserLimit" in refused.stderr
        site.end(array, job)
    finally:
        change_qos(site, "MaxSubmitJobsPerUser=-1")


@pytest.mark.parametrize("limit", ["MaxSubmitJobsPerUser", "GrpSubmitJobs"])
def test_a_limit_on_submitted_jobs_that_refuses_a_trainer_says_what_it_counts(
    site: Site, limit: str
) -> None:
    modify = ("sacctmgr", "-i", "modify", "qos", "bftrainer", "set")
    site.lab.run(*modify, f"{limit}=2", user=ADMIN)
    try:
        words = ("sbatch", "--bftrainer", "-N1-2", "-o/dev/null")
        refused = site.lab.run(*words, input=IDLE, check=False)
        assert refused.returncode != 0
        assert "count each of a trainer's MAX nodes, and one more" in refused.stderr
        site.end(site.submit(IDLE, "1-1"))
    finally:
        site.lab.run(*modify, f"{limit}=-1", user=ADMIN)
