"""What the doctor says of each mistake in a site's settings, as admins read it: findings.txt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.cli.doctor import table
from bftrainer_slurm.doctor.facts import Facts, Plugin
from bftrainer_slurm.doctor.finding import Level
from bftrainer_slurm.slurm.configuration import pass_in
from tests.approved import approve_each
from tests.doctor.made import KEEPER, LINE, here, of, shares, site

_DATA = Path(__file__).parent / "data"
FILE = Path(__file__).with_name("findings.txt")
SAVES = {"SuspendProgram": "/sbin/off", "ResumeProgram": "/sbin/on", "SuspendTime": "300 sec"}
LIMITS = {"AccountingStorageType": "accounting_storage/slurmdbd", "MaxJobCount": "10000"}
BY_QOS = {"PreemptType": "preempt/qos", "line": f"{LINE} qos=idle"}
PYXIS = "required /usr/lib/slurm/spank_pyxis.so"
# One mistake each, in a site that is good but for it: these settings of slurm.conf, this setting of
# a partition, this line of plugstack.conf.
MISTAKES: tuple[dict[str, str], ...] = (
    {"PreemptType": "preempt/none"},
    {"PreemptMode": "OFF"},
    {"PreemptExemptTime": "00:10:00"},
    {"CompleteWait": "32 sec"},
    {"MinJobAge": "30 sec"},
    {"MaxArraySize": "0"},
    {"ProctrackType": "proctrack/pgid"},
    {"SlurmdParameters": "config_overrides,contain_spank"},
    {"partition": "bftrainer PreemptMode=CANCEL"},
    {"partition": "bftrainer PreemptMode=OFF"},
    {"partition": "bftrainer PriorityTier=10"},
    {"partition": "bftrainer GraceTime=60"},
    {"partition": "bftrainer State=DOWN"},
    {"partition": "bftrainer Default=YES"},
    {"partition": "bftrainer ExclusiveUser=YES"},
    {"partition": "bftrainer MinNodes=2"},
    {"partition": "bftrainer OverSubscribe=FORCE:4"},
    {"partition": "main PriorityTier=0"},
    {"line": LINE.replace("optional", "required")},
    {"line": f"{LINE} partition=idle"},
    {"line": LINE.replace(":6740 ", ":6741 ")},
    {"line": f"{LINE} rewrite=cli_filter"},
    {"SLURM_VERSION": "20.11.9"},
    {"PreemptType": "preempt/qos"},
)
# No mistakes, but something else would be better.
BETTER: tuple[dict[str, str], ...] = (
    {"KillWait": "90 sec"},
    {"KillWait": "3 sec"},
    {"SchedulerParameters": "bf_interval=30"},
    {"SchedulerParameters": "bf_interval=300,bf_continue"},
    {"SchedulerParameters": "bf_interval=30,bf_max_time=10,bf_continue"},
    {"SchedulerParameters": "batch_sched_delay=60,bf_continue"},
    {"SchedulerParameters": "bf_continue,partition_job_depth=1"},
    {"SchedulerParameters": "bf_continue,bf_max_job_part=1"},
    {"SchedulerParameters": "bf_continue,bf_max_job_user_part=1"},
    {"SchedulerParameters": "bf_continue,bf_max_job_user=10"},
    {"SchedulerParameters": "bf_continue,bf_resolution=300"},
    {"ReturnToService": "0"},
    SAVES,
    {"SchedulerType": "sched/builtin"},
    {"MaxJobCount": "4"},
    {"MinJobAge": "0 sec"},
    {"MaxArraySize": "2"},
    {"Epilog": "(null)"},
    {"SlurmdUser": "slurm(64030)"},
    {"PrivateData": "jobs,usage"},
    {"partition": "bftrainer MaxTime=00:30:00"},
    {"partition": "bftrainer MaxNodes=UNLIMITED"},
    {"line": LINE.replace("announce=192.0.2.1:6740", "")},
    {"line": LINE.replace("python=/opt/python", "")},
    {"SLURM_VERSION": "23.11.4"},
    {"SlurmUser": "root(0)"},
    {"HealthCheckProgram": "/usr/sbin/nhc", "HealthCheckNodeState": "IDLE"},
    {"HealthCheckProgram": "/usr/sbin/nhc", "HealthCheckNodeState": "CYCLE,IDLE"},
)
# Of a site whose jobs share nodes.
OF_SHARES: tuple[dict[str, str], ...] = (
    {"SelectTypeParameters": "CR_CPU"},
    {"SelectTypeParameters": "CR_CORE,CR_ONE_TASK_PER_CORE"},
    {"SelectType": "select/linear"},
    {"DefMemPerCPU": "UNLIMITED"},
    {"DefMemPerCPU": "0"},
    {"DefMemPerCPU": "0", "JobDefaults": "DefCpuPerGPU=2,DefMemPerGPU=0"},
    {"TaskPlugin": "task/affinity"},
    {"TaskPlugin": "task/none"},
    {"TaskPlugin": "task/none", "ConstrainCores": "no", "ConstrainDevices": "no"},
    {"ConstrainCores": "no"},
    {"ConstrainDevices": "no"},
    {"ConstrainRAMSpace": "(null)"},
    {"partition": "bftrainer OverSubscribe=EXCLUSIVE"},
    {"SelectTypeParameters": "CR_CORE_MEMORY,CR_LLN"},
    {"SchedulerParameters": "bf_interval=30,bf_continue,pack_serial_at_end"},
    {"TopologyPlugin": "topology/tree"},
)


def called(changes: dict[str, str]) -> str:
    """Return what is different in a site."""
    told = []
    for key, value in changes.items():
        if key == "partition":
            told.append(f"partition {value}")
        elif key == "line":
            words, usual = value.split(), LINE.split()
            less = [f"no {word}" for word in usual if word not in words]
            told.append("plugin's line: " + ", ".join([w for w in words if w not in usual] or less))
        else:
            told.append(f"{key}={value}")
    return ", ".join(told)


def with_plugin(**changes: Any) -> Facts:
    return replace(site(), plugin=replace(site().plugin, **changes))


def with_network(**changes: Any) -> Facts:
    return replace(site(), network=replace(site().network, **changes))


def with_qos(qos: dict[str, dict[str, str]], **values: str) -> Facts:
    return replace(site(**values), qos=qos)


def with_settings(facts: Facts, **changes: Any) -> Facts:
    return replace(facts, settings=replace(facts.settings, **changes))


IDLE = {"Preempt": "", "PreemptMode": "cluster"}
PREEMPTS = {"idle": IDLE, "normal": {"Preempt": "idle"}}
OTHERS = {
    "no plugin": replace(site(), plugin=Plugin((), loaded=False)),
    "the plugin is not loaded": with_plugin(loaded=False),
    "the plugin's file is not there": with_plugin(loaded=False, file_there=False),
    "elements' Python lacks our package": with_plugin(package=""),
    "elements' Python has another version": with_plugin(package="0.0.9"),
    "the rewriting's Python gives no answer": with_plugin(rewriting="/usr/bin/python3: no answer"),
    "the line stands twice": with_plugin(lines=site().plugin.lines * 2),
    "the line before that of pyxis": with_plugin(pyxis_after=PYXIS),
    **{
        f"configless, the line in {include}": replace(
            site(SlurmctldParameters="enable_configless"),
            plugin=replace(site().plugin, include=include),
        )
        for include in ("plugstack.d/*.conf", "/etc/bftrainer/plugstack.conf")
    },
    "elements that never say that they are up": with_network(mute=("n2", "n3")),
    "the keeper's name is not known": with_network(resolved={}),
    "the keeper's name is loopback": with_network(resolved={"ctl.example.org": ("127.0.1.1",)}),
    "no keeper": with_network(keeper="Connection refused"),
    "no controller": with_network(controller="stopped"),
    "no reader": with_network(reader="no reader answers"),
    "Slurm refuses the controller": with_network(refusals=("trainer 7: Slurm refused",)),
    **{
        f"the keeper on port {port}": with_settings(
            site(line=LINE.replace("6740", str(port)), SlurmctldPort="6817"),
            listen=KEEPER.replace("6740", str(port)),
        )
        for port in (6817, 6818, 6820)
    },
    "a deep queue": replace(site(), passed=pass_in((_DATA / "sdiag-22.05.8.txt").read_text())),
    "no partition": replace(site(), partitions={}),
    "clocks apart": here(site(), clock_ahead_s=-40.0),
    "an open key": here(site(), key="/etc/bftrainer/bftrainer.key is open to others; chmod 600 it"),
    "another's state folder": here(site(), state_owner="mallory"),
    "an open state folder": here(site(), state_owner="slurm", state_mode=0o777),
    "no munged": here(site(), munge="munged is silent"),
    **{
        f"a qos with {limit}={value}": with_qos(
            {"idle": {limit: value}}, partition="bftrainer QoS=idle"
        )
        for limit, value in (
            ("GrpSubmit", "1"),
            ("MaxSubmitPU", "1"),
            ("GrpJobs", "1"),
            ("MaxJobsPU", "1"),
            ("GrpTRES", "cpu=100,node=1"),
            ("MaxTRESPU", "node=1"),
        )
    },
    **{
        f"trainers may fill the job table: {why}": with_qos(
            {"idle": {"GrpSubmit": limit}},
            **LIMITS,
            AccountingStorageEnforce=enforce,
            partition=f"bftrainer QoS={qos}",
            SlurmUser="x",
        )
        for why, qos, limit, enforce in (
            ("no qos", "N/A", "", "none"),
            ("no limit", "idle", "", "limits,qos"),
            ("limits are not enforced", "idle", "900", "associations"),
        )
    },
    "a qos that cancels": with_qos(PREEMPTS, **BY_QOS, PreemptMode="CANCEL"),
    "a qos that is exempt": with_qos(
        PREEMPTS | {"idle": IDLE | {"PreemptExemptTime": "00:05:00"}}, **BY_QOS
    ),
    "a qos that does not preempt": with_qos(PREEMPTS | {"long": {"Preempt": ""}}, **BY_QOS),
    "share=yes in the controller's file alone": with_settings(shares(line=LINE), share=True),
    "share=yes in the plugin's line alone": with_settings(shares(), share=False),
}


def told(facts: Facts, *levels: Level) -> str:
    *lines, _ = table(of(facts, *levels))
    return "\n".join(lines)


def test_what_is_to_change_and_what_would_be_better_is_said_as_approved() -> None:
    sites = {called(one): site(**one) for one in (*MISTAKES, *BETTER)}
    sites |= {f"shared nodes, {called(one)}": shares(**one) for one in OF_SHARES}
    levels = Level.CHANGE, Level.CONSIDER
    shown = {what: told(one, *levels) for what, one in (sites | OTHERS).items()}
    hidden = told(site(JobSubmitPlugins="lua"), Level.UNKNOWN)
    approve_each(FILE, shown | {"what this host does not show": hidden})


@pytest.mark.parametrize("changes", [*MISTAKES, *BETTER], ids=called)
def test_a_mistake_is_one_finding_and_what_would_be_better_is_no_mistake(
    changes: dict[str, str],
) -> None:
    (found,) = of(site(**changes), Level.CHANGE, Level.CONSIDER)
    assert (found.level is Level.CHANGE) == (changes in MISTAKES)
    assert found.why
