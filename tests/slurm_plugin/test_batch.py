"""What stands in a batch script's place, as Slurm and the script see it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.labcluster.site import Site, started_site
from scripts.labcluster.waiting import wait_until
from tests.slurm_plugin.elements import RunningElement

pytestmark = [pytest.mark.slurm, pytest.mark.newest]

# In steps and in jobs that it submits nothing may think that it is the script.
SCRIPT = """#!/bin/bash
echo "name=$(basename "$0") and $# arguments"
srun sh -c 'echo step=$BFTRAINER_STEP'
srun --export=NONE /bin/sh -c 'exit 5'
echo "code=$?"
echo "next=$(srun sh -c 'srun --version > /dev/null; echo $BFTRAINER_STEP')"
echo "within=$(env -u SLURM_JOB_ID salloc --version > /dev/null; echo ok)"
echo ready=yes
while ! [ -e END ]; do sleep 0.1; done
exit 9
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(nodes=1) as running:
        yield running


@pytest.fixture
def once(site: Site) -> Iterator[Site]:
    yield site
    site.run("scancel", "--user=alice", user="root")
    wait_until(lambda: site.lab.run("squeue", "-h", user="root").stdout == "")


def start_element(site: Site, script: str, *options: str) -> RunningElement:
    output = site.folder() / "element.out"
    return RunningElement(
        site.lab, site.submit(script, "1-2", f"--output={output}", *options), output
    )


def test_the_script_sees_a_batch_script_of_one_node(once: Site) -> None:
    end = once.lab.home("alice") / "end"
    element = start_element(once, SCRIPT.replace("END", str(end)))
    element.wait_for("ready=yes")
    wanted = {"step": "0", "code": "5", "next": "2", "within": "ok"}
    wanted["name"] = "slurm_script and 0 arguments"
    found = element.lines()
    assert {name: found.get(name) for name in wanted} == wanted
    end.touch()
    wait_until(lambda: element.state() == "FAILED")
    assert "ExitCode=9:0" in once.run("scontrol", "show", "job", element.name).stdout


@pytest.mark.parametrize("who", ["user", "site"])
def test_who_does_not_want_it_has_it_not(once: Site, who: str) -> None:
    script = "#!/bin/bash\nsrun true\necho sruns=${BFTRAINER_SRUNS+there}\necho end\n"
    added = " batch=each" if who == "site" else ""
    with once.lab.plugstack(lambda line: f"{line.rstrip()}{added}\n"):
        element = start_element(once, script, *(["--bftrainer=batch=each"] * (who == "user")))
        element.wait_for("end")
    assert element.lines()["sruns"] == ""
