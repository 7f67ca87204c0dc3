"""Under slurmctld's own limit on a user's requests (rl_enable, since 23.02).

A user's own controller: SlurmUser, which the site's runs as, is exempt.
"""

from __future__ import annotations

import json
import os

import pytest

from scripts.labcluster.controller import Controller
from scripts.labcluster.lab import started_lab
from scripts.labcluster.site import site_on
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


def test_nodes_come_and_go_without_complaint_under_the_usual_limit() -> None:
    """Of a trainer of bob's, which bob's controller runs by commands: these ask most."""
    with started_lab(nodes=4, conf=["SlurmctldParameters=rl_enable"]) as lab:
        site = site_on(lab, keeper="")
        words = ("--partition", "bftrainer", "--gateway", "commands")
        own = Controller(site.lab, site.stage.program, "bob", words)
        with own.running():
            script = site.folder("bob") / "train.sh"
            script.write_text(SCRIPT)
            submit = ("bftrainer", "submit", "--personal", "--state", own.state, "-p", "bftrainer")
            array = json.loads(site.run(*submit, "--json", script, user="bob").stdout)["array"]
            wait_until(lambda: len(own.trainer(array)["nodes"]) == 4, _PATIENCE_S)
            site.lab.run("srun", "-N4", "--exclusive", "true")  # alice's
            wait_until(lambda: own.trainer(array)["reclaimed"] == 4, _PATIENCE_S)
            wait_until(lambda: len(own.trainer(array)["nodes"]) == 4, _PATIENCE_S)
            lines = own.log.read_text().splitlines()
            # On a busy machine slurmctld may be slow to answer by itself. This host's program is
            # built for its own Slurm, and cannot run beside another one.
            usual = (" INFO ", "slurmctld took", "bftrainer-grow is not used")
            assert [line for line in lines if not any(word in line for word in usual)] == []
            site.end(array)
