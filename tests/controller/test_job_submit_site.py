"""On a real cluster whose job_submit.lua changes submissions, or refuses changes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from scripts.labcluster.site import QUICK, Site, prepared_site
from scripts.labcluster.waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.newest,
    pytest.mark.usefixtures("nothing_is_left"),
    pytest.mark.timeout(1500),
]

HOLDS = "#!/bin/bash\nsrun sleep 10000\n"
LUA = """
function slurm_job_submit(job, partitions, user)
  if job.name == "replaced" then job.comment = "account=x" end
  if job.name == "audited" then job.comment = "audited " .. (job.comment or "") end
  if job.name == "moved" then job.partition = "main" end
  if job.name == "kept" then job.requeue = 0 end
  if job.name == "shared" then job.shared = 1 end
  if job.name == "licensed" then job.licenses = "home" end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
  return (user == 0 or record.name ~= "locked") and slurm.SUCCESS or slurm.ERROR
end
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with prepared_site(nodes=3, conf=("Licenses=home:1000",)) as made:
        (made.lab.dir / "job_submit.lua").write_text(LUA)
        with (made.lab.dir / "slurm.conf").open("a") as slurm_conf:
            slurm_conf.write("JobSubmitPlugins=lua\n")
        made.lab.run("scontrol", "reconfigure", user="root")
        with made.controlled(QUICK):
            yield made


def named(site: Site, name: str) -> int:
    return site.submit(HOLDS, "1-2", f"--job-name={name}")


def test_a_record_with_a_word_before_it_is_a_trainers(site: Site) -> None:
    array = named(site, "audited")
    wait_until(lambda: len(site.controller.trainer(array)["nodes"]) == 2)


@pytest.mark.parametrize(
    ("name", "said"),
    [("replaced", "job_submit plugin replaces comments"), ("moved", "it is in partition main")],
)
def test_a_submission_that_the_site_changes_is_named(site: Site, name: str, said: str) -> None:
    array = named(site, name)
    wait_until(lambda: str(array) in site.controller.status()["malformed"])
    assert f"job {array} is not a valid trainer" in site.controller.log.read_text()
    for command in (("status",), ("show", str(array))):
        done = site.run("bftrainer", *command, user="alice", check=False)
        shown = " ".join((done.stdout + done.stderr).split())
        assert f"job {array} is left alone: " in shown
        assert said in shown
    assert set(site.lab.squeue(array, "%t %r")) == {"PD JobHeldUser"}


def test_a_site_that_refuses_changes_is_named(site: Site) -> None:
    array = named(site, "locked")
    wait_until(lambda: site.controller.trainer(array).get("why"))
    said = "its slurm_job_modify has to let the controller's account change jobs"
    assert said in site.controller.log.read_text()
    for command in ("status", "show", "explain"):
        words = (command,) if command == "status" else (command, str(array))
        shown = site.run("bftrainer", *words, user="alice").stdout
        assert said in " ".join(shown.split())
    found = json.loads(site.run("bftrainer", "doctor", "--json", check=False).stdout)["findings"]
    (finding,) = [one for one in found if one["check"] == "changes of jobs"]
    assert finding["level"] == "change"
    assert said in finding["found"]


@pytest.mark.parametrize(
    ("name", "said"), [("shared", "it has lost --exclusive"), ("licensed", "licences (home)")]
)
def test_a_trainer_to_which_the_site_adds_what_keeps_it_from_nodes_waits_and_says_so(
    site: Site, name: str, said: str
) -> None:
    array = named(site, name)
    wait_until(lambda: said in (site.controller.trainer(array).get("why") or ""))
    assert "the site's job_submit plugin did that" in site.run("bftrainer", "status").stdout
    site.end(array)


def test_a_trainer_that_the_site_forbids_to_be_requeued_comes_back_from_a_reclaim(
    site: Site,
) -> None:
    array = named(site, "kept")
    wait_until(lambda: len(site.controller.trainer(array)["nodes"]) == 2)
    with site.taken(3):
        wait_until(lambda: site.controller.trainer(array)["reclaimed"] == 2)
    wait_until(lambda: len(site.controller.trainer(array)["nodes"]) == 2)
    site.end(array)
