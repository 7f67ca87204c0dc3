"""The whole path on a real cluster: a tagged job trains in holes, whatever is lost on the way."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest

from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until
from tests.controller.sites import (
    IDLE,
    SLEEPS,
    nodes_of,
    shown,
    wait_for_more_samples,
    wait_for_reclaims,
    wait_for_size,
    without_controller,
)

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.torch, pytest.mark.timeout(1500)]
PATIENCE_S = 500  # who trains imports torch first, and all nodes are this host


@pytest.fixture(scope="module")
def page(site: Site) -> Iterator[str]:
    """HOST:PORT of the page, and who answers for the history."""
    with site.reading() as address:
        yield address


def asked(page: str, what: str) -> str:
    with urlopen(f"http://{page}/{what}", timeout=120) as answer:
        return str(answer.read().decode())


def test_the_doctors_trial_says_how_late_a_job_came_and_leaves_nothing(site: Site) -> None:
    said = site.run("bftrainer", "doctor", "--try", "--json", timeout_s=900).stdout
    outcome = json.loads(said)
    assert outcome["late_s"] == outcome["with_trainer_s"] - outcome["without_s"]
    wait_until(lambda: set(site.lab.states().values()) == {"idle"})


@pytest.mark.once
def test_a_search_of_ten_trainers_that_share_the_nodes_comes_to_its_end(site: Site) -> None:
    folder = site.folder()
    whole = 'echo \'{"accuracy": 0.5}\' > "$f.new" && mv "$f.new" "$f"'  # never seen half
    result = f'f="${{1#--folder=}}/result.json"; {whole}'
    (folder / "train.sh").write_text(f"#!/bin/bash\n#SBATCH --bftrainer -N1-2\n{result}\n")
    search = site.stage.repo / "examples" / "search" / "search.py"
    python = site.stage.repo / ".venv" / "bin" / "python"
    said = site.run(python, search, "--every-s", "1", cwd=folder, timeout_s=1000).stdout
    assert "10 of 10 trials have a result" in said


def test_an_ordinary_job_gets_its_nodes_and_the_trainer_grows_back(site: Site, page: str) -> None:
    array = site.submit(IDLE, "1-4")
    wait_for_size(site, array, 4)
    before = site.controller.status()["preempted"]
    with site.taken(3):
        wait_for_reclaims(site, array, 3)
        started = before["started"] + 1
        wait_until(lambda: site.controller.status()["preempted"]["started"] == started)
    wait_for_size(site, array, 4)
    preempted = site.controller.status()["preempted"]
    more = {name: preempted[name] - before[name] for name in ("started", "jobs", "elements")}
    assert more == {"started": 1, "jobs": 1, "elements": 3}
    assert 0 <= preempted["delay_max_s"] < 300
    assert "bftrainer_pool_used_nodes 4" in asked(page, "metrics")
    found = json.loads(asked(page, f"api/1/nodes?from={int(time.time()) - 3600}"))
    assert array in [one["array"] for one in found["trainers"]]
    assert [row[0] for row in found["rows"]] == sorted(site.lab.states())
    changes = json.loads(asked(page, f"api/1/trainer?array={array}"))["changes"]
    assert (changes[-1]["nodes"], sum(one.get("reclaimed", 0) for one in changes)) == (4, 3)


def test_where_slurm_cancels_what_it_preempts_a_trainer_comes_back_and_status_says_what_to_change(
    site: Site,
) -> None:
    update = ("scontrol", "update", "PartitionName=bftrainer")
    site.run(*update, "PreemptMode=CANCEL", user="root")
    try:
        array = site.submit(IDLE, "1-4")
        wait_for_size(site, array, 4)
        site.run("srun", "-Q", "-N1", "--exclusive", "true", user="bob")
        wait_for_reclaims(site, array, 1)
        wait_for_size(site, array, 4)
        assert site.controller.trainer(array)["failures"] == 0
        assert "PreemptMode=CANCEL" in shown(site, "status")
    finally:
        site.run(*update, "PreemptMode=REQUEUE", user="root")


def test_a_job_that_waits_for_a_training_to_end_well_starts_though_elements_never_ran(
    site: Site,
) -> None:
    folder = site.folder()
    begin = f"#!/bin/bash\necho $SLURM_ARRAY_TASK_ID >> {folder}/begun\n"
    array = site.submit(
        begin + f"srun sh -c 'until [ -e {folder}/end ]; do sleep 0.2; done'\n", "1-6"
    )
    nothing = ("-N1", "-o", "/dev/null")
    good, bad = (
        site.lab.sbatch(*nothing, f"--dependency={kind}:{array}", script=SLEEPS)
        for kind in ("afterok", "afternotok")
    )
    wait_until(lambda: len(nodes_of(site, array)) == 4 and (folder / "begun").exists())
    begun = (folder / "begun").read_text()
    rows = [row.split() for row in site.lab.squeue(array, "%K %N %t") if row.endswith(" R")]
    other = next(node for task, node, _ in rows if task != begun.strip())  # it has no script
    site.run("srun", "-Q", "-N1", "-w", other, "--exclusive", "true", user="bob")
    wait_for_reclaims(site, array, 1)
    wait_for_size(site, array, 4)
    heir = site.submit(IDLE, "2-4", "--bftrainer=weight=0.001")  # wants the nodes at once
    (folder / "end").touch()
    wait_until(lambda: site.lab.squeue(good, "%t") == ["R"])
    assert set(site.lab.squeue(array, "%t")) == {"CD"}
    wait_until(lambda: site.lab.squeue(bad, "%r") == ["DependencyNeverSatisfied"])
    assert (folder / "begun").read_text() == begun
    wait_until(lambda: site.controller.trainer(array)["state"] == "finished")
    site.end(good, bad)
    wait_for_size(site, heir, 4)


@pytest.mark.once
def test_a_controller_whose_key_is_missing_says_so(site: Site) -> None:
    config = site.lab.dir / "no-key.toml"
    config.write_text('key_file = "/nowhere/key"\n')
    command = ("bftrainer", "controller", "--mode", "site", "--config", config, "--state")
    refused = site.run(*command, site.folder(), check=False)
    assert refused.returncode == 2
    assert "key_file: /nowhere/key cannot be read" in refused.stderr


@pytest.mark.once
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to be somebody else")
def test_the_past_of_a_trainer_is_told_after_its_end_to_others_its_nodes_alone(
    site: Site, page: str
) -> None:
    array = site.submit(IDLE, "1-2")
    wait_for_size(site, array, 2)
    site.end(array)

    def told(user: str) -> Any:
        printed = site.run("bftrainer", "history", str(array), "--json", user=user).stdout
        return json.loads(printed)["trainer"]

    assert told("alice")["total"]["grew"] == 2
    assert [gained for change in told("carol")["changes"] for gained in change["gained"]]
    assert ("goodput" in told("alice"), "goodput" in told("carol")) == (True, False)


@pytest.mark.once
def test_without_the_controller_status_shows_what_slurm_knows(site: Site) -> None:
    array = site.submit(IDLE, "1-2")
    wait_for_size(site, array, 2)
    with without_controller(site):
        document = json.loads(site.run("bftrainer", "status", "--json").stdout)
        assert "down" in document["down"]
        (mine,) = [one for one in document["trainers"] if one["array"] == array]
        assert len(mine["nodes"]) == 2
        assert "what Slurm knows" in shown(site, "status")


@pytest.mark.once
def test_training_survives_joins_reclaims_and_the_death_of_everything_of_ours(site: Site) -> None:
    array, folder = site.digits("1-3", samples=10**9)
    wait_for_more_samples(site, array)

    site.lab.run("srun", "-N3", "--exclusive", "sleep", "2")  # takes two of three
    wait_for_more_samples(site, array)
    wait_for_size(site, array, 3)

    before = site.lab.running(array)
    site.controller.kill()
    checkpoint = folder / "checkpoint.pt"
    wait_until(checkpoint.exists, PATIENCE_S)
    saved_s = checkpoint.stat().st_mtime
    wait_until(lambda: checkpoint.stat().st_mtime > saved_s + 3, PATIENCE_S)
    site.controller.start()
    wait_for_more_samples(site, array)
    assert site.lab.running(array) == before

    site.controller.keeper.kill()
    wait_for_more_samples(site, array)


@pytest.mark.once
def test_a_trainer_that_fails_at_once_is_given_up_with_a_reason(site: Site) -> None:
    array = site.submit("#!/bin/sh\n. venv/bin/activate\nsrun torchrun train.py\n", "1-2")
    wait_until(lambda: site.controller.trainer(array)["state"] == "given up", PATIENCE_S)
    assert "failed" in site.controller.trainer(array)["why"]
    wait_until(lambda: not site.lab.running(array))
    said = site.run("bftrainer", "show", str(array), user="alice").stdout
    assert re.search(r"^output +/.*\.out$", said, re.MULTILINE)
    assert "venv/bin/activate" in said.splitlines()[-1]
