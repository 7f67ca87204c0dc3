"""Under slurmctld's own limit on a user's requests (rl_enable, since 23.02).

A user's own controller: SlurmUser, which the site's runs as, is exempt.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from scripts.labcluster.controller import Controller
from scripts.labcluster.lab import started_lab
from scripts.labcluster.site import Site, site_on
from scripts.labcluster.waiting import wait_until
from tests.installed_slurm import slurm_version

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.newest,
    pytest.mark.torch,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(slurm_version() < (23, 2), reason="rl_enable came with Slurm 23.02"),
    pytest.mark.skipif(os.getuid() != 0, reason="needs root to be several users"),
]
SCRIPT = "#!/bin/bash\n#SBATCH --bftrainer -N1-4 -o /dev/null\nsleep 1000\n"
# Several looks that take so long that each of them is followed by the longest rest there is.
_PATIENCE_S = 600


@dataclass
class Limited:
    """A cluster with a limit, and bob's trainer on all of its nodes, run by bob himself."""

    site: Site
    controller: Controller
    array: int
    most: int

    def nodes(self) -> int:
        return len(self.controller.trainer(self.array)["nodes"])

    def reclaimed(self) -> int:
        return int(self.controller.trainer(self.array)["reclaimed"])

    def lose_all_nodes_and_get_them_back(self) -> None:
        before = self.reclaimed()
        self.site.lab.run("srun", f"-N{self.most}", "--exclusive", "true")  # alice's
        wait_until(lambda: self.reclaimed() == before + self.most, _PATIENCE_S)
        wait_until(lambda: self.nodes() == self.most, _PATIENCE_S)

    def complaints(self) -> list[str]:
        """Lines of the controller's log that are no mere information."""
        return [
            line for line in self.controller.log.read_text().splitlines() if " INFO " not in line
        ]

    def asks_more_and_its_controller_complains(self) -> bool:
        """Bob's own question counts too; who looks seldom is not limited otherwise."""
        self.site.run("squeue", user="bob", check=False)
        return any("slurmctld took" in line for line in self.complaints())

    def was_limited(self) -> bool:
        log = (self.site.lab.dir / "log" / "slurmctld.log").read_text()
        uid = self.site.lab.run("id", "-u", "bob").stdout.strip()
        return f"rate limit exceeded by uid {uid}" in log


@contextmanager
def limited(nodes: int, parameters: str, *options: str) -> Iterator[Limited]:
    with started_lab(nodes=nodes, conf=[f"SlurmctldParameters={parameters}"]) as lab:
        site = site_on(lab, keeper="")
        own = Controller(
            site.lab, site.stage.program, "bob", ("--partition", "bftrainer", *options)
        )
        with own.running():
            script = site.folder("bob") / "train.sh"
            script.write_text(SCRIPT)
            submit = ("bftrainer", "submit", "--personal", "--state", own.state, "-p", "bftrainer")
            array = json.loads(site.run(*submit, "--json", script, user="bob").stdout)["array"]
            found = Limited(site, own, array, nodes)
            wait_until(lambda: found.nodes() == nodes, _PATIENCE_S)
            yield found
            site.end(array)


def test_nodes_come_and_go_without_complaint_under_the_usual_limit() -> None:
    with limited(4, "rl_enable", "--gateway", "commands") as bob:  # which asks more than pyslurm
        bob.lose_all_nodes_and_get_them_back()
        # On a busy machine slurmctld may be slow to answer by itself.
        assert [line for line in bob.complaints() if "slurmctld took" not in line] == []


def test_a_limit_that_is_far_too_low_slows_it_down_and_loses_nothing() -> None:
    with limited(2, "rl_enable,rl_bucket_size=1,rl_refill_rate=1") as bob:
        bob.lose_all_nodes_and_get_them_back()
        assert bob.was_limited()
        wait_until(bob.asks_more_and_its_controller_complains, _PATIENCE_S)
        wait_until(lambda: bob.controller.status()["controller"]["error"] is None, _PATIENCE_S)
