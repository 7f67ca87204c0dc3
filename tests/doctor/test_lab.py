"""The doctor on a real cluster with mistakes made on purpose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from scripts.labcluster.lab import ADMIN, Lab
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.newest]

MISTAKES = {
    "CompleteWait": "32",
    "PreemptExemptTime": "00:05:00",
    "MinJobAge": "20",
    "SchedulerParameters": "bf_interval=120,batch_sched_delay=0",
}


def reconfigure(lab: Lab) -> None:
    """Let Slurm read its settings again, which newer ones do in processes that begin anew."""
    lab.run("scontrol", "reconfigure", user=ADMIN)
    wait_until(lambda: lab.run("sinfo", user=ADMIN, check=False).returncode == 0)
    lab.wait_until_idle()


@pytest.fixture
def mistaken(lab: Lab) -> Iterator[Lab]:
    """The cluster with these settings, and a plugin's line that is not right either."""
    conf, plugstack = lab.dir / "slurm.conf", lab.dir / "plugstack.conf"
    before = conf.read_text(), plugstack.read_text()
    kept = [line for line in before[0].splitlines() if line.partition("=")[0] not in MISTAKES]
    wrong = [f"{key}={value}" for key, value in MISTAKES.items()]
    text = "\n".join([*kept, *wrong, ""]).replace("PriorityTier=10", "PriorityTier=0")
    try:
        conf.write_text(text.replace("GraceTime=0", "GraceTime=30"))
        reconfigure(lab)
        plugstack.write_text("optional /nowhere/bftrainer.so keeper=localhost:6820\n")
        yield lab
    finally:
        conf.write_text(before[0])
        plugstack.write_text(before[1])
        reconfigure(lab)


def diagnosed(lab: Lab, *options: str) -> Any:
    program = (REPO / ".venv" / "bin" / "python", "-m", "bftrainer_slurm", "doctor")
    return lab.run(*program, *options, user=ADMIN, check=False, cwd=REPO)


def test_mistakes_are_found_with_the_lines_to_write(mistaken: Lab) -> None:
    result = diagnosed(mistaken, "--json")
    findings = json.loads(result.stdout)["findings"]
    levels = {one["check"]: one["level"] for one in findings}
    for check in (
        *("CompleteWait", "PreemptExemptTime", "MinJobAge", "PriorityTier", "GraceTime"),
        *("plugin loaded", "keeper's address", "keeper's port"),
    ):
        assert levels[check] == "change", check
    assert levels["bf_interval"] == "consider"
    assert {levels[one] for one in ("PreemptType", "MaxJobCount", "Slurm", "MUNGE")} == {"ok"}
    lines = {change["line"] for one in findings for change in one["changes"]}
    wanted = {"CompleteWait=0", "MinJobAge=300", "PartitionName=main PriorityTier=1"}
    assert wanted <= lines


def test_what_slurm_says_of_itself_is_understood(lab: Lab) -> None:
    findings = json.loads(diagnosed(lab, "--json").stdout)["findings"]
    wrong = {one["check"] for one in findings if one["level"] == "change"}
    assert wrong == {"plugin's line", "plugin loaded", "listen", "site's key"}
    assert not [one["check"] for one in findings if "not shown" in one["found"]]
    assert {one["check"]: one["level"] for one in findings}["clocks"] == "ok"
