"""A cluster that accounts and preempts by QOS (slurmdbd, preempt/qos)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scripts.labcluster.lab import ADMIN
from scripts.labcluster.site import Site
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until
from tests.controller.shared_nodes.conftest import KILL_WAIT_S
from tests.controller.sites import IDLE, SLEEPS
from tests.slurm_plugin.conftest import WAYS

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.timeout(1500)]
SUBMIT = ("sbatch", "--parsable", "--bftrainer", "-N1-2", "-o/dev/null")


@contextmanager
def limited(site: Site, qos: str, limit: str, most: int) -> Iterator[None]:
    """A QOS has a limit meanwhile."""
    modify = ("sacctmgr", "-i", "modify", "qos", qos, "set")
    site.run(*modify, f"{limit}={most}", user=ADMIN)
    try:
        yield
    finally:
        site.run(*modify, f"{limit}=-1", user=ADMIN)


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
    job = int(site.run(*SUBMIT, input=IDLE, env=environment).stdout)
    assert set(site.lab.squeue(job, "%q")) == {"bftrainer"}
    refused = site.run(*SUBMIT, "--qos=normal", input=IDLE, env=environment, check=False)
    assert "leave --qos out" in refused.stderr
    assert refused.returncode != 0


def test_whatever_is_in_the_qos_of_trainers_gives_its_node_back_at_once(site: Site) -> None:
    output = site.folder() / "stubborn.out"
    stubborn = "#!/bin/bash\ntrap '' TERM\necho ready\nwhile :; do sleep 0.5; done\n"
    options = ("-p", "main", "-q", "bftrainer", "-N1", "--exclusive", f"-o{output}")
    site.lab.sbatch(*options, script=stubborn, env={"SLURM_JOB_QOS": "normal"})
    wait_until(lambda: output.exists() and "ready" in output.read_text())
    site.run("srun", "-N2", "--exclusive", "true", user="bob", timeout_s=KILL_WAIT_S - 30)


def test_trainers_do_not_count_against_the_limits_of_their_users_ordinary_jobs(site: Site) -> None:
    with limited(site, "normal", "MaxSubmitJobsPerUser", 1):
        site.submit(IDLE, "1-2")
        site.lab.sbatch("-N1", "-o", "/dev/null", script=SLEEPS)
        refused = site.run("sbatch", "-N1", "--wrap", "true", check=False)
        assert "QOSMaxSubmitJobPerUserLimit" in refused.stderr


@pytest.mark.parametrize("limit", ["MaxSubmitJobsPerUser", "GrpSubmitJobs"])
def test_a_limit_on_submitted_jobs_that_refuses_a_trainer_says_what_it_counts(
    site: Site, limit: str
) -> None:
    with limited(site, "bftrainer", limit, 2):
        refused = site.run(*SUBMIT, input=IDLE, check=False)
        assert refused.returncode != 0
        assert "count each of a trainer's MAX nodes, and one more" in refused.stderr
        site.submit(IDLE, "1-1")
