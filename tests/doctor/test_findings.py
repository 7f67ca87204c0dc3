"""What the doctor says of each mistake in a site's settings, as admins read it: findings.txt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bftrainer_slurm.cli.doctor import table
from bftrainer_slurm.doctor.checkup import checkup
from bftrainer_slurm.doctor.facts import Asking, Facts, Plugin
from bftrainer_slurm.doctor.finding import Finding, Level
from bftrainer_slurm.slurm.configuration import pass_in
from tests.approved import approve_each
from tests.doctor.made import KEEPER, LINE, PASS, PYXIS, QOS, but, of, shares, site

FILE = Path(__file__).with_name("findings.txt")
LINES = {
    "required": LINE.replace("optional", "required"),
    "partition=idle": f"{LINE} partition=idle",
    "another port": LINE.replace(":6740 ", ":6741 "),
    "rewrite=cli_filter": f"{LINE} rewrite=cli_filter",
    "no announce": LINE.replace("announce=192.0.2.1:6740", ""),
    "no address": LINE.replace(f"keeper={KEEPER} ", ""),
    "no python": LINE.replace("python=/opt/python", ""),
}
PARTS: dict[str, dict[str, dict[str, Any]]] = {
    "plugin": {
        "the plugin is not loaded": {"loaded": False},
        "the plugin's file is not there": {"loaded": False, "file_there": False},
        "elements' Python lacks our package": {"package": ""},
        "elements' Python has another version": {"package": "0.0.9"},
        "the rewriting's Python gives no answer": {"rewriting": "/usr/bin/python3: no answer"},
        "the line stands twice": {"lines": site().plugin.lines * 2},
        "the line before that of pyxis": {"pyxis_after": PYXIS},
    },
    "network": {
        "elements that never say that they are up": {"mute": ("n2", "n3")},
        "the keeper's name is not known": {"resolved": {}},
        "the keeper's name is loopback": {"resolved": {"ctl.example.org": ("127.0.1.1",)}},
        "no keeper": {"keeper": "Connection refused"},
        "no controller": {"controller": "stopped"},
        "no reader": {"reader": "no reader answers"},
        "Slurm refuses the controller": {"refusals": ("trainer 7: Slurm refused",)},
    },
    "host": {
        "clocks apart": {"clock_ahead_s": -40.0},
        "an open key": {"key": "/etc/bftrainer/bftrainer.key is open to others; chmod 600 it"},
        "another's state folder": {"state_owner": "mallory"},
        "an open state folder": {"state_owner": "slurm", "state_mode": 0o777},
        "no munged": {"munge": "munged is silent"},
    },
}
LIMITS = {"AccountingStorageType": "accounting_storage/slurmdbd", "MaxJobCount": "10000"}
LIMITED = ("GrpSubmit=1", "MaxSubmitPU=1", "GrpJobs=1", "MaxJobsPU=1")
LIMITED += ("GrpTRES=cpu=100,node=1", "MaxTRESPU=node=1")
ENFORCED = {
    "no qos": ("N/A", "", "none"),
    "no limit": ("idle", "", "limits,qos"),
    "limits are not enforced": ("idle", "900", "associations"),
}
EXEMPT = QOS["idle"] | {"PreemptExemptTime": "00:05:00"}


def with_qos(qos: str | dict[str, dict[str, str]], **values: str) -> Facts:
    """Return the facts of a site with these QOSes, or with a limit (``GrpJobs=1``) of ``idle``."""
    rows = {"idle": dict([qos.split("=", 1)])} if isinstance(qos, str) else qos
    return replace(site(**values), qos=rows)


def by_qos(**values: str) -> dict[str, str]:
    return {"PreemptType": "preempt/qos", "line": f"{LINE} qos=idle", **values}


OTHERS: dict[str, Facts] = {
    **{f"plugin's line: {what}": site(line=line) for what, line in LINES.items()},
    "no plugin, and nobody answers yet": replace(
        but(site(), "network", keeper="refused", controller="refused"),
        plugin=Plugin((), loaded=False),
    ),
    **{
        what: but(site(), part, **changes)
        for part, cases in PARTS.items()
        for what, changes in cases.items()
    },
    **{
        f"configless, the line in {include}": but(
            site(SlurmctldParameters="enable_configless"), "plugin", include=include
        )
        for include in ("plugstack.d/*.conf", "/etc/bftrainer/plugstack.conf")
    },
    **{
        f"the keeper on port {port}": but(
            site(line=LINE.replace("6740", port), SlurmctldPort="6817"),
            "settings",
            listen=KEEPER.replace("6740", port),
        )
        for port in ("6817", "6818", "6820", "0")
    },
    "a deep queue": replace(site(), passed=pass_in(PASS)),
    "a deep queue of a larger cluster": replace(
        site(partition="bftrainer TotalNodes=80"), passed=pass_in(PASS)
    ),
    "an attack on the terminal, and something graver": site(
        SlurmdUser="\x1b[2Jeve", CompleteWait="32 sec"
    ),
    "no compiled programs": but(site(), "host", programs=()),
    "the default memory of another partition": shares(
        partition="main DefMemPerNode=8000", DefMemPerCPU="0"
    ),
    "no partition": replace(site(), partitions={}),
    **{f"a qos with {limit}": with_qos(limit, partition="bftrainer QoS=idle") for limit in LIMITED},
    **{
        f"trainers may fill the job table: {why}": with_qos(
            f"GrpSubmit={limit}",
            **LIMITS,
            AccountingStorageEnforce=enforced,
            partition=f"bftrainer QoS={qos}",
            SlurmUser="x",
        )
        for why, (qos, limit, enforced) in ENFORCED.items()
    },
    "a qos that is not there": with_qos({}, **by_qos()),
    "a qos that cancels": with_qos(QOS, **by_qos(PreemptMode="CANCEL")),
    "a qos that is exempt": with_qos(QOS | {"idle": EXEMPT}, **by_qos()),
    "a qos that does not preempt": with_qos(QOS | {"long": {"Preempt": ""}}, **by_qos()),
    "share=yes in the controller's file alone": but(shares(line=LINE), "settings", share=True),
    "share=yes in the plugin's line alone": but(shares(), "settings", share=False),
}


# By what these trainers ask for a limit is judged: far more nodes are none of its business.
ASKING = but(
    site(partition="bftrainer QoS=idle bftrainer TotalNodes=500"),
    "network",
    trainers=(Asking("ann", 2, 6), Asking("ann", 1, 4), Asking("bob", 2, 2, gpus=4)),
)
OF_THEM = {
    "GrpSubmit": ("5", "15", "17"),
    "MaxSubmitPU": ("13", "14"),
    "GrpTRES": ("node=1", "node=9", "cpu=9,node=12", "gres/gpu=3", "gres/gpu=8"),
    "MaxTRESPU": ("node=8", "node=10"),
}
SAVES = {"SuspendProgram": "/sbin/off", "ResumeProgram": "/sbin/on", "SuspendTime": "300 sec"}
CLOUD = {"n1": "NodeName=n1 State=IDLE+CLOUD+POWERED_DOWN"}
SLEEPS, NEVER = (
    replace(site(**SAVES | {"SuspendTime": after}), nodes_shown=CLOUD)
    for after in ("300 sec", "INFINITE")
)
IN_QOS = LIMITS | {"AccountingStorageEnforce": "safe", "partition": "bftrainer QoS=idle"}
# What one of the checks says, whether something is wrong or not.
CHECKS: dict[str, dict[str, Facts]] = {
    **{
        f"{limit} of idle": {one: replace(ASKING, qos={"idle": {limit: one}}) for one in values}
        for limit, values in OF_THEM.items()
    },
    "power saving": {
        "none": site(),
        "it never begins": NEVER,
        "trainers leave in time": but(SLEEPS, "settings", keep_awake_s=60.0),
        "trainers wake nodes": but(SLEEPS, "settings", wake_nodes=True),
    },
    "GrpSubmitJobs": {
        "a limit": with_qos("GrpSubmit=900", **IN_QOS),
        "it cannot be read": site(**IN_QOS),
    },
    "JobSubmitPlugins": {"lua": site(JobSubmitPlugins="lua")},
    "Epilog": {"how long it takes is not seen": site()},
    "elements' Python": {"torch is not seen": site()},
    "site's key": {"it is another account's": but(site(), "host", key=None)},
    "account": {
        what: but(site(), "host", user="carol", admin_level=level)
        for what, level in {
            "an operator": "Operator",
            "no operator": "None",
            "unknown": None,
        }.items()
    },
}


def site_of(words: str) -> Facts:
    """Return the facts of a site that a heading of findings.txt names."""
    if words in OTHERS:
        return OTHERS[words]
    make = shares if words.startswith("shared nodes, ") else site
    words = words.removeprefix("shared nodes, ")
    if words.startswith("partition "):
        return make(partition=words.removeprefix("partition "))
    return make(**dict(one.split("=", 1) for one in words.split(", ")))


def told(findings: Sequence[Finding]) -> str:
    *lines, _ = table(findings)
    return "\n".join(lines)


def test_what_is_to_change_and_what_would_be_better_is_said_as_approved() -> None:
    """One mistake each, in a site that is good but for it.

    A heading of the file is one: settings of slurm.conf, or of a partition, or one of OTHERS.
    Where nothing stands below it, all is well.
    """
    headings = re.findall("^== (.*)$", FILE.read_text(), re.MULTILINE)
    levels = Level.CHANGE, Level.CONSIDER
    shown = {one: told(of(site_of(one), *levels)) for one in dict.fromkeys([*headings, *OTHERS])}
    approve_each(FILE, shown)


def test_what_a_check_says_of_a_site_is_said_as_approved() -> None:
    shown = {
        f"{check}: {what}": told([one for one in checkup(facts) if one.check == check])
        for check, cases in CHECKS.items()
        for what, facts in cases.items()
    }
    approve_each(FILE.with_name("checks.txt"), shown)
