"""``--fix``: a patch that changes the lines that must change, and no others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bftrainer_slurm.doctor.checkup import checkup
from bftrainer_slurm.doctor.facts import ConfigFile
from bftrainer_slurm.doctor.finding import (
    OURS,
    PLUGSTACK,
    SCHEDULER,
    SLURM_CONF,
    Change,
    Finding,
    must,
)
from bftrainer_slurm.doctor.patch import patch
from tests.doctor.made import LINE, site

CONF = """\
# our cluster
ClusterName=lab
completewait = 32
SchedulerParameters=bf_interval=60,defer
PartitionName=main Nodes=ALL PriorityTier=1 \\
    State=UP
PartitionName=bftrainer Nodes=ALL PriorityTier=1 \\
    GraceTime=60 State=UP # trainers
PartitionName=bftrainer2 Nodes=ALL GraceTime=60
"""


def patched(tmp_path: Path, text: str, *changes: Change, file: str = SLURM_CONF) -> str:
    """Return the text after the patch was applied as an admin would."""
    path = tmp_path / file
    if text:
        path.write_text(text)
    finding = must("check", "found", "why", *changes)
    diff = patch([finding], {file: [ConfigFile(path, text)]})
    subprocess.run(
        ["patch", "-p0", "-d", "/"], input=diff, text=True, check=True, capture_output=True
    )
    return path.read_text()


def part(key: str, value: str, within: str) -> Change:
    return Change(SLURM_CONF, key, value, within)


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (Change(SLURM_CONF, "CompleteWait", "0"), "completewait = 32", "CompleteWait=0"),
        (
            part("bf_interval", "30", SCHEDULER),
            "bf_interval=60,defer",
            "defer,bf_interval=30",
        ),
        (part("bf_continue", "", SCHEDULER), "=60,defer", "=60,defer,bf_continue"),
        (part("GraceTime", "0", "PartitionName=bftrainer"), "GraceTime=60 S", "GraceTime=0 S"),
    ],
)
def test_a_setting_is_changed_in_its_line(
    tmp_path: Path, change: Change, before: str, after: str
) -> None:
    assert patched(tmp_path, CONF, change) == CONF.replace(before, after)


@pytest.mark.parametrize(
    ("line", "change", "after"),
    [
        (
            "PartitionName=main Nodes=ALL  # all",
            part("PriorityTier", "1", "PartitionName=main"),
            "PartitionName=main Nodes=ALL PriorityTier=1  # all",
        ),
        (
            "PartitionName=main Nodes=ALL # once State=UP GraceTime=9",
            part("GraceTime", "0", "PartitionName=main"),
            "PartitionName=main Nodes=ALL GraceTime=0 # once State=UP GraceTime=9",
        ),
        (
            "SchedulerParameters=bf_interval=60 # slow",
            part("bf_continue", "", SCHEDULER),
            "SchedulerParameters=bf_interval=60,bf_continue # slow",
        ),
        (
            "SchedulerParameters=defer,\\\n  bf_interval=60",
            part("bf_interval", "30", SCHEDULER),
            "SchedulerParameters=defer,bf_interval=30",
        ),
        (
            "CompleteWait=32 # for epilogs",
            Change(SLURM_CONF, "CompleteWait", "0"),
            "CompleteWait=0 # for epilogs",
        ),
    ],
)
def test_no_setting_is_written_into_a_comment(
    tmp_path: Path, line: str, change: Change, after: str
) -> None:
    assert patched(tmp_path, f"{line}\n# end\n", change) == f"{after}\n# end\n"


def test_a_plugins_line_keeps_its_comment(tmp_path: Path) -> None:
    change = Change(PLUGSTACK, "qos", "low", within="/opt/lib/bftrainer.so")
    text = patched(tmp_path, f"{LINE}  # trainers\n", change, file=PLUGSTACK)
    assert text == f"{LINE} qos=low  # trainers\n"


def test_what_is_not_set_yet_is_added(tmp_path: Path) -> None:
    text = patched(
        tmp_path,
        CONF.rstrip("\n"),  # whose last line has no end
        Change(SLURM_CONF, "MinJobAge", "300"),
        part("MinNodes", "0", "PartitionName=main"),
    )
    assert text.endswith("GraceTime=60\nMinJobAge=300\n")
    assert "    State=UP MinNodes=0\n" in text


def test_a_plugins_line_keeps_its_other_settings(tmp_path: Path) -> None:
    change = Change(PLUGSTACK, "keeper", "here:6740", within="/opt/lib/bftrainer.so")
    required = LINE.replace("optional", "required") + "\n"
    optional = Change(PLUGSTACK, "optional", "", within="/opt/lib/bftrainer.so")
    words = patched(tmp_path, required, change, optional, file=PLUGSTACK).split()
    assert words[0] == "optional"
    assert set(LINE.split()) ^ set(words) == {"keeper=ctl.example.org:6740", "keeper=here:6740"}


def test_our_own_file_is_made_where_there_is_none(tmp_path: Path) -> None:
    assert patched(tmp_path, "", Change(OURS, "listen", '"a:1"'), file=OURS) == 'listen = "a:1"\n'


def test_what_is_in_no_file_here_and_what_is_to_be_run_are_remarks() -> None:
    change, command = Change(SLURM_CONF, "CompleteWait", "0"), Change("shell", "make install", "")
    finding = must("check", "found", "why", change, command)
    assert patch([finding], {}).splitlines() == [
        "# in slurm.conf, which is not on this host: CompleteWait=0",
        "# run: make install",
    ]


def test_where_nothing_must_change_there_is_no_patch() -> None:
    facts = site(KillWait="3 sec")  # which is only to be considered
    assert patch(checkup(facts), {SLURM_CONF: [ConfigFile(Path("slurm.conf"), CONF)]}) == ""


def test_several_mistakes_make_one_patch_a_file(tmp_path: Path) -> None:
    findings: list[Finding] = checkup(site(CompleteWait="32 sec", MinJobAge="3 sec"))
    diff = patch(findings, {SLURM_CONF: [ConfigFile(tmp_path / "slurm.conf", CONF)]})
    assert diff.count("--- ") == 1
    assert [line for line in diff.splitlines() if line.startswith("+")][1:] == [
        "+CompleteWait=0",
        "+MinJobAge=300",
    ]
