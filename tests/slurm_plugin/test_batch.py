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
echo "arguments=$#"
srun sh -c 'echo step=$BFTRAINER_STEP'
srun --export=NONE /bin/sh -c 'exit 5'
echo "code=$?"
echo "next=$(srun sh -c 'srun --version > /dev/null; echo $BFTRAINER_STEP')"
echo "within=$(env -u SLURM_JOB_ID salloc --version > /dev/null; echo ok)"
echo ready=yes
while ! [ -e END ]; do sleep 0.1; done
exit 9
"""

# What a process has from the one before it.
SHOWS = r"""#!/bin/sh
echo "script=$(basename "$0") $#"
echo "signals=$(grep -E '^Sig(Blk|Ign|Cgt)' /proc/$$/status | tr -d '\n\t')"
cd /proc/$$/fd  # by the shell itself: what a $(...) runs may see both ends of its pipe
set -- *
echo "files=$*"
echo "umask=$(umask) limits=$(ulimit -a | md5sum)"
echo "names=$(env -0 | tr '\n\0' ' \n' | cut -d= -f1 | sort | tr '\n' ' ')"
echo end
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
    wanted = {"arguments": "0", "step": "0", "code": "5", "next": "2", "within": "ok"}
    found = element.lines()
    assert {name: found.get(name) for name in wanted} == wanted
    end.touch()
    wait_until(lambda: element.state() == "FAILED")
    assert "ExitCode=9:0" in once.run("scontrol", "show", "job", element.name).stdout


def test_of_two_sruns_that_ask_the_first_trains_and_the_other_is_told_so(once: Site) -> None:
    home = once.lab.home("alice")
    trains, ask = home / "trains", home / "ask.py"
    ask.write_text(
        "import os, sys\n"
        "from bftrainer_slurm.elastic.rendezvous.only_launcher import trains_beside\n"
        "print(f'{sys.argv[1]}={trains_beside(os.environ)}')\n"
    )
    element = start_element(
        once,
        f"#!/bin/bash\nsrun sh -c 'python3 {ask} first; touch {trains}; exec sleep 1000' &\n"
        f"while ! [ -e {trains} ]; do sleep 0.1; done\n"
        f"srun --overlap python3 {ask} second\n"
        "echo ready=yes\nwait\n",
    )
    element.wait_for("ready=yes")
    found = element.lines()
    assert [found[name] for name in ("first", "second")] == ["False", "True"]
    assert "an srun trains already" in element.text()


@pytest.mark.parametrize("who", ["user", "site"])
def test_who_does_not_want_it_has_it_not(once: Site, who: str) -> None:
    script = "#!/bin/bash\nsrun true\necho sruns=${BFTRAINER_SRUNS+there}\necho end\n"
    plugstack = once.lab.dir / "plugstack.conf"
    line = plugstack.read_text()
    if who == "site":
        plugstack.write_text(f"{line.rstrip()} batch=each\n")
    try:
        element = start_element(once, script, *(["--bftrainer=batch=each"] * (who == "user")))
        element.wait_for("end")
    finally:
        plugstack.write_text(line)
    assert element.lines()["sruns"] == ""


def test_a_script_has_what_it_had_without_us(once: Site) -> None:
    plugstack = once.lab.dir / "plugstack.conf"
    line = plugstack.read_text()
    element = start_element(once, SHOWS)
    element.wait_for("end\n")
    plugstack.write_text(" ".join(word for word in line.split() if "python=" not in word) + "\n")
    try:
        plain = start_element(once, SHOWS)
        plain.wait_for("end\n")
    finally:
        plugstack.write_text(line)
    found, wanted = element.lines(), plain.lines()
    names, others = set(found.pop("names").split()), set(wanted.pop("names").split())
    ours = {"PYTHONPATH", "SINGULARITY_BINDPATH"}
    assert names - others <= ours and "SINGULARITY_BINDPATH" in names
    assert others <= names
    assert {name: wanted[name] for name in found} == found
    assert found["script"] == "slurm_script 0"


def test_a_script_without_srun_runs_as_ever_and_says_so(once: Site) -> None:
    element = start_element(once, "#!/bin/bash\necho sruns=${BFTRAINER_SRUNS+there}\necho end\n")
    element.wait_for("end")
    assert element.lines()["sruns"] == ""
    assert "this script has no srun: all of it runs on each node" in element.text()


def test_it_is_requeued_as_any_script(once: Site) -> None:
    element = start_element(once, "#!/bin/sh\necho ready=$$\nsrun sleep 1000\n")
    element.wait_for("ready=")
    element.requeue()
    wait_until(lambda: element.text().count("ready=") == 2)
