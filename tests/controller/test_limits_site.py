"""On a real cluster: trainers that cannot have every node, those that can have none, and those that
a site's job_submit.lua changes, or does not let the controller change.
"""

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
IDLE = "#!/bin/bash\nsrun sleep 1000\n"
RED = {"n1", "n2"}
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
    conf = ("Licenses=matlab:2,home:1000", "GresTypes=gpu")
    with prepared_site(nodes=4, conf=conf) as made:
        (made.lab.dir / "job_submit.lua").write_text(LUA)
        with (made.lab.dir / "slurm.conf").open("a") as slurm_conf:
            slurm_conf.write("JobSubmitPlugins=lua\n")
        made.lab.run("scontrol", "reconfigure", user="root")
        for node in sorted(RED):
            has = ("AvailableFeatures=red", "ActiveFeatures=red", "Gres=gpu:a100:2")
            made.lab.run("scontrol", "update", f"NodeName={node}", *has, user="root")
        with made.controlled(QUICK):
            yield made


def nodes_of(site: Site, array: int) -> set[str]:
    return set(site.controller.trainer(array)["nodes"])


def says(site: Site, array: int) -> str:
    """What 'bftrainer show' says of its state."""
    shown = site.run("bftrainer", "show", str(array), check=False).stdout
    return "".join(line for line in str(shown).splitlines() if line.startswith("state"))


def assert_never_tried(site: Site, array: int) -> None:
    """Others have the nodes meanwhile, and no element of it was ever let go."""
    other = site.submit(IDLE, "1-4")
    wait_until(lambda: len(nodes_of(site, other)) == 4)
    # Slurm holds what waits for a job that failed as an operator would.
    held = {line.split()[1] for line in site.lab.squeue(array, "%t %r")}
    assert held <= {"JobHeldUser", "JobHeldAdmin"}
    assert f"grow {array}_" not in site.controller.log.read_text()
    site.end(array, other)


def test_a_constraint_and_its_complement_share_the_cluster(site: Site) -> None:
    red, excluding = site.submit(IDLE, "1-4", "-C", "red"), site.submit(IDLE, "1-4", "-x", "n[1-2]")
    wait_until(lambda: len(nodes_of(site, red)) == len(nodes_of(site, excluding)) == 2)
    assert nodes_of(site, red) == RED
    assert nodes_of(site, excluding) == {"n3", "n4"}
    site.end(red, excluding)


def test_nodes_too_small_are_never_tried(site: Site) -> None:
    array = site.submit(IDLE, "3-4", "--gpus-per-node=a100:1")
    wait_until(lambda: "2 of 4 nodes fit" in says(site, array))
    assert_never_tried(site, array)


def test_nodes_that_have_what_is_asked_for_are_used_and_explain_counts_them(site: Site) -> None:
    array = site.submit(IDLE, "1-4", "--gres=gpu:1")
    wait_until(lambda: nodes_of(site, array) == RED)

    def explained() -> str:
        return " ".join(site.run("bftrainer", "explain", str(array)).stdout.split())

    wait_until(lambda: "It may use 2 of the pool's 4 nodes" in explained())
    site.end(array)


def test_a_reservation_of_licences_keeps_nobody_from_nodes(site: Site) -> None:
    make = ("scontrol", "create", "reservation", "Reservation=course", "Start=now", "Duration=10")
    licences = ("Licenses=matlab:1", "Flags=LICENSE_ONLY", "Users=root")
    site.lab.run(*make, *licences, user="root")
    array = site.submit(IDLE, "1-4")
    wait_until(lambda: len(nodes_of(site, array)) == 4)
    site.end(array)
    site.lab.run("scontrol", "delete", "Reservation=course", user="root")


def test_a_trainer_that_waits_for_another_job_keeps_no_node_from_others(site: Site) -> None:
    first = site.lab.sbatch("--hold", "-o", "/dev/null", script="#!/bin/sh\n")
    array = site.submit(IDLE, "1-4", f"--dependency=afterok:{first}")
    wait_until(lambda: f"it waits for another job (afterok:{first})" in says(site, array))
    assert_never_tried(site, array)
    array = site.submit(IDLE, "1-4", f"--dependency=afterok:{first}")
    site.lab.run("scancel", str(first))
    wait_until(lambda: f"it waits for another job (afterok:{first}(failed))" in says(site, array))
    assert_never_tried(site, array)


# What the site changes.


def named(site: Site, name: str) -> int:
    return site.submit(IDLE, "1-2", f"--job-name={name}")


def test_a_record_with_a_word_before_it_is_a_trainers(site: Site) -> None:
    array = named(site, "audited")
    wait_until(lambda: len(nodes_of(site, array)) == 2)


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
    wait_until(lambda: len(nodes_of(site, array)) == 2)
    with site.taken(4):
        wait_until(lambda: site.controller.trainer(array)["reclaimed"] == 2)
    wait_until(lambda: len(nodes_of(site, array)) == 2)
    site.end(array)
