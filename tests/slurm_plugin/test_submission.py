"""One table of submissions, submission_cases.json.

What becomes of each case is tested without Slurm (submission/test_plugin.py). Here the SPANK plugin
and the cli_filter are held to the corners, which show that each rewrites and refuses alike; on
further Slurms, too, but for those ("once") that are refused by what is ours alone. The plugin is
held to all of the table nightly.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts.labcluster.lab import Lab
from scripts.labcluster.waiting import wait_until
from tests.slurm_plugin.conftest import WAYS
from tests.slurm_plugin.fake_keeper import FakeKeeper

pytestmark = pytest.mark.slurm

Case = dict[str, Any]
CASES: list[Case] = json.loads((Path(__file__).parent / "submission_cases.json").read_text())
PLAIN = "#!/bin/sh\ntrue\n"
ID = re.compile(r",id=([0-9a-f]{8})(?= |$)")


def marks_of(way: str, case: Case) -> Any:
    if "corner" not in case:
        return pytest.mark.once, pytest.mark.nightly
    if case["corner"] == "once":
        return pytest.mark.once
    return () if way == "spank" else pytest.mark.newest


def cases(what: str) -> Any:
    """Parametrize with those cases of the table that say ``what`` is to come out of them."""
    found = [
        pytest.param(way, case, id=f"{way}-{case['name']}", marks=marks_of(way, case))
        for way in WAYS
        for case in CASES
        if what in case and (way == "spank" or "corner" in case)
    ]
    return pytest.mark.parametrize(("way", "case"), found)


def submit(lab: Lab, case: Case) -> subprocess.CompletedProcess[str]:
    """Run the case's command as a user would: with a script file, unless it goes by a pipe."""
    options: dict[str, Any] = {"check": False, "env": case.get("environment", {})}
    if "command" in case:
        return lab.run(case["command"], *case["arguments"], "true", **options)
    command = ["sbatch", "--parsable", *case["arguments"]]
    script = case.get("script", PLAIN)
    if case.get("through") == "pipe":
        return lab.run(*command, input=script, **options)
    path = lab.dir / "case.sh"
    path.write_text(script)
    path.chmod(0o755)
    return lab.run(*command, path, *case.get("script_arguments", []), **options)


def fields(lab: Lab, job: str) -> dict[str, str]:
    shown = lab.run("scontrol", "show", "job", "-o", job, user="root").stdout.splitlines()[0]
    shown = shown.replace("gres/gpu", "gres:gpu")  # the former from 23.11 on
    words = dict(word.split("=", 1) for word in shown.split() if "=" in word)
    comment = re.search(r" Comment=(.*?)\s+(?=[A-Z]\w+=)", shown)
    return words | ({"Comment": comment[1]} if comment else {})


def jobs(lab: Lab) -> list[str]:
    return lab.run("squeue", "-h", "-t", "all", "-o", "%A", user="root").stdout.split()


@cases("job")
def test_submitted_as_the_table_says(plugin_lab: Lab, case: Case) -> None:
    done = submit(plugin_lab, case)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    shown = fields(plugin_lab, job)
    plugin_lab.run("scancel", job, user="root")
    if "Comment" in shown:
        shown["Comment"] = ID.sub("", shown["Comment"])
    wanted = case["job"]
    assert {key: shown.get(key) for key in wanted} == wanted
    assert all(line in done.stderr for line in case.get("told", ())), done.stderr


@pytest.mark.newest
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("option", ["--exclusive", "--mem=0", ""])
def test_who_asks_for_gpus_has_a_part_of_a_node_where_the_site_shares_nodes(
    plugin_lab: Lab, way: str, option: str
) -> None:
    options = ["--gpus-per-node=2", *filter(None, [option])]
    done = submit(plugin_lab, {"arguments": ["--bftrainer", "-N1-2", *options]})
    shown = fields(plugin_lab, done.stdout.strip())
    plugin_lab.run("scancel", done.stdout.strip(), user="root")
    shares = not option and way != "spank"  # the other cluster's line has share=yes
    # 26.05 has a word of its own for it, and says OverSubscribe=NO of jobs that share nodes too.
    whole = shown.get("Exclusive", shown["OverSubscribe"].replace("NO", "YES")) not in ("NO", "OK")
    assert whole is not shares, shown
    assert ("for whole nodes write --exclusive" in done.stderr) is shares


@cases("refused")
def test_refused_as_the_table_says(plugin_lab: Lab, case: Case) -> None:
    before = jobs(plugin_lab)
    done = submit(plugin_lab, case)
    assert done.returncode != 0
    assert any(text in done.stderr for text in case["refused"]), done.stderr
    assert set(jobs(plugin_lab)) <= set(before)  # Slurm forgets old ones meanwhile


@pytest.mark.parametrize("way", ["spank"])
def test_a_quiet_submission_says_nothing(plugin_lab: Lab) -> None:
    before = jobs(plugin_lab)
    done = plugin_lab.run("sbatch", "-Q", "--bftrainer", "-N1-2", "--prefer=red", input=PLAIN)
    (job,) = set(jobs(plugin_lab)) - set(before)
    plugin_lab.run("scancel", job, user="root")
    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize("way", WAYS)
def test_a_submission_is_told_to_the_keeper(plugin_lab: Lab, keeper: FakeKeeper) -> None:
    before = keeper.lines.count("submitted")
    job = plugin_lab.sbatch("--bftrainer", "-N1-2", script=PLAIN)
    # That of an earlier submission may come late: sbatch does not wait for the keeper.
    wait_until(lambda: keeper.lines.count("submitted") > before)
    plugin_lab.run("scancel", str(job))


@pytest.mark.parametrize("way", ["spank"])
def test_a_singleton_waits_for_what_has_its_name(plugin_lab: Lab) -> None:
    words = ("--bftrainer", "-N1", "--dependency=singleton", "-J", "chain")
    first, second = (str(plugin_lab.sbatch(*words, script=PLAIN)) for _ in range(2))
    shown = fields(plugin_lab, second)["Dependency"]
    plugin_lab.run("scancel", first, second, user="root")
    assert shown.startswith(f"afterany:{first}_*(")


@pytest.mark.parametrize("way", ["spank"])
def test_each_submission_is_announced_once_where_the_site_asks_for_it(plugin_lab: Lab) -> None:
    """With a datagram to two hosts; the first is a documentation address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        to = f"announce=192.0.2.1:6740,127.0.0.1:{listener.getsockname()[1]}"
        for command in (("sbatch", "-o/dev/null"), ("srun", "true"), ("salloc", "srun", "true")):
            given = "#!/bin/sh\nsrun true\n" if command[0] == "sbatch" else None
            with plugin_lab.plugstack(lambda line: f"{line.rstrip()} {to}\n"):
                plugin_lab.run(*command, input=given)
                plugin_lab.wait_until_idle()
            assert listener.recv(100) == b"announced\n"
            with pytest.raises(BlockingIOError):
                listener.recv(100)


@pytest.mark.newest
@pytest.mark.skipif(os.getuid() != 0, reason="needs a user who is not Slurm's")
@pytest.mark.parametrize("way", ["lua"])
def test_slurmctld_takes_batch_scripts_alone_in_the_trainers_partition(plugin_lab: Lab) -> None:
    for command in ("srun", "salloc"):
        for partitions in ("bftrainer", "main,bftrainer"):
            refused = plugin_lab.run(command, "-p", partitions, "-N1", "true", check=False)
            assert refused.returncode != 0
            assert "takes batch scripts only" in refused.stderr
        plugin_lab.run(command, "-N1", "true")
    words = ("--hold", "-o/dev/null")
    ours = plugin_lab.sbatch("-p", "bftrainer", *words, script=PLAIN)
    job = plugin_lab.sbatch(*words, script=PLAIN)
    update = ("scontrol", "update", f"JobId={job}")
    assert plugin_lab.run(*update, "Partition=bftrainer", check=False).returncode != 0
    assert plugin_lab.squeue(job, "%P") == ["main"]
    plugin_lab.run(*update, "JobName=other")
    plugin_lab.run("scancel", str(job), str(ours))
