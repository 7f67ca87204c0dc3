"""Each mistake in a site's settings is found, and the line to change is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.doctor.checkup import checkup
from bftrainer_slurm.doctor.facts import Asking, Network, Plugin
from bftrainer_slurm.doctor.finding import Level
from bftrainer_slurm.doctor.gather import clock_ahead_s
from bftrainer_slurm.doctor.plugstack import pyxis_after_ours, read_lines
from bftrainer_slurm.slurm.configuration import pass_in, seconds_of, values_in
from tests.doctor.made import CONFIG, KEEPER, LINE, here, of, site, the_one

_DATA = Path(__file__).parent / "data"


def test_a_good_site_has_nothing_to_change() -> None:
    assert of(site(), Level.CHANGE, Level.CONSIDER) == []


@pytest.mark.parametrize(
    ("told_s", "ahead_s"), [(99.0, -1.0), (100.0, 0.0), (120.0, 0.0), (130.0, 0.0), (140.0, 10.0)]
)
def test_a_clock_that_was_told_slowly_may_be_right(told_s: float, ahead_s: float) -> None:
    assert clock_ahead_s(told_s, began_s=100.0, ended_s=130.0) == ahead_s


def test_what_cannot_be_seen_from_here_is_said_with_how_to_find_out() -> None:
    found = of(site(), Level.UNKNOWN)
    assert {one.check for one in found} == {"Epilog", "elements' Python"}
    assert all(one.why for one in found)


# Of the trainers' partition: a key, what is wrong, and what is right.
OF_PARTITION = [
    ("PreemptMode", "CANCEL", "REQUEUE"),
    ("PreemptMode", "OFF", "REQUEUE"),
    ("PriorityTier", "10", "0"),
    ("GraceTime", "60", "0"),
    ("State", "DOWN", "UP"),
    ("Default", "YES", "NO"),
    ("ExclusiveUser", "YES", "NO"),
    ("MinNodes", "2", "0"),
    ("OverSubscribe", "FORCE:4", "NO"),
]
# Settings, the check that speaks, its level, and the line that it asks for.
CONTAINS = "config_overrides,contain_spank"
MISTAKES = [
    ({"PreemptType": "preempt/none"}, "PreemptType", "PreemptType=preempt/partition_prio"),
    ({"PreemptMode": "OFF"}, "PreemptMode", "PreemptMode=REQUEUE"),
    ({"PreemptExemptTime": "00:10:00"}, "PreemptExemptTime", "PreemptExemptTime=0"),
    ({"CompleteWait": "32 sec"}, "CompleteWait", "CompleteWait=0"),
    ({"MinJobAge": "30 sec"}, "MinJobAge", "MinJobAge=300"),
    ({"MaxArraySize": "0"}, "MaxArraySize", "MaxArraySize=1001"),
    ({"ProctrackType": "proctrack/pgid"}, "ProctrackType", "ProctrackType=proctrack/cgroup"),
    ({"SlurmdParameters": CONTAINS}, "SlurmdParameters", "SlurmdParameters=config_overrides"),
    *(
        ({"partition": f"bftrainer {key}={wrong}"}, key, f"PartitionName=bftrainer {key}={right}")
        for key, wrong, right in OF_PARTITION
    ),
    ({"partition": "main PriorityTier=0"}, "PriorityTier", "PartitionName=main PriorityTier=1"),
    ({"line": LINE.replace("optional", "required")}, "plugin's line", "bftrainer.so optional"),
    ({"line": LINE + " partition=idle"}, "plugin's partition", "partition=bftrainer"),
    ({"line": LINE.replace(":6740 ", ":6741 ")}, "keeper=", f"keeper={KEEPER}"),
    ({"line": LINE + " rewrite=cli_filter"}, "CliFilterPlugins", "cli_filter/lua"),
    ({"SLURM_VERSION": "20.11.9"}, "Slurm", ""),
]
SAVES = {"SuspendProgram": "/sbin/off", "ResumeProgram": "/sbin/on", "SuspendTime": "300 sec"}
SLOW, DELAY = "bf_interval=30,bf_max_time=10,bf_continue", "batch_sched_delay"
BETTER = [
    ({"KillWait": "90 sec"}, "KillWait", "KillWait=30"),
    ({"KillWait": "3 sec"}, "KillWait", "max_grace=3"),
    ({"SchedulerParameters": "bf_interval=30"}, "bf_continue", "Parameters=...,bf_continue"),
    ({"SchedulerParameters": "bf_interval=300,bf_continue"}, "bf_interval", "bf_interval=30"),
    ({"SchedulerParameters": SLOW}, "bf_max_time", "bf_max_time=30"),
    ({"SchedulerParameters": f"{DELAY}=60,bf_continue"}, DELAY, f"{DELAY}=3"),
    *(
        ({"SchedulerParameters": f"bf_continue,{option}=1"}, option, f"{option}=100")
        for option in ("partition_job_depth", "bf_max_job_part", "bf_max_job_user_part")
    ),
    (
        {"SchedulerParameters": "bf_continue,bf_max_job_user=10"},
        "bf_max_job_user",
        "bf_max_job_user_part=10",
    ),
    ({"ReturnToService": "0"}, "ReturnToService", "ReturnToService=1"),
    (
        {"SchedulerParameters": "bf_continue,bf_resolution=300"},
        "bf_resolution",
        "bf_resolution=60",
    ),
    (SAVES, "power saving", "keep_awake_s = 3600"),
    ({"SchedulerType": "sched/builtin"}, "backfill", "SchedulerType=sched/backfill"),
    ({"MaxJobCount": "4"}, "MaxJobCount", "MaxJobCount=8"),
    ({"MinJobAge": "0 sec"}, "MinJobAge", "MinJobAge=300"),
    ({"MaxArraySize": "2"}, "MaxArraySize", "MaxArraySize=1001"),
    ({"Epilog": "(null)"}, "Epilog", "Epilog=/bin/true"),
    ({"SlurmdUser": "slurm(64030)"}, "SlurmdUser", "SlurmdUser=root"),
    ({"PrivateData": "jobs,usage"}, "PrivateData", ""),
    ({"partition": "bftrainer MaxTime=00:30:00"}, "MaxTime", "MaxTime=INFINITE"),
    ({"partition": "bftrainer MaxNodes=UNLIMITED"}, "MaxNodes", "MaxNodes=1"),
    ({"line": LINE.replace("announce=192.0.2.1:6740", "")}, "announce", "announce=IP:PORT"),
    ({"line": LINE.replace("python=/opt/python", "")}, "elements' Python", "python=/usr/local"),
    ({"SLURM_VERSION": "23.11.4"}, "Slurm", ""),
    ({"SlurmUser": "root(0)"}, "account", "sacctmgr modify user NAME"),
]


@pytest.mark.parametrize(("changes", "check", "line"), MISTAKES, ids=lambda one: str(one)[:40])
def test_a_mistake_is_found_with_the_line_to_change(
    changes: dict[str, str], check: str, line: str
) -> None:
    found = the_one(site(**changes))
    named = {check, f"partition's {check}"} if "partition" in changes else {check}
    assert (found.check in named, found.level) == (True, Level.CHANGE)
    assert line in " ".join(change.line for change in found.changes)
    assert found.why


@pytest.mark.parametrize(("changes", "check", "line"), BETTER, ids=lambda one: str(one)[:40])
def test_what_would_be_better_is_no_mistake(changes: dict[str, str], check: str, line: str) -> None:
    found = the_one(site(**changes))
    assert (found.check, found.level) == (check, Level.CONSIDER)
    assert line in " ".join(change.line for change in found.changes)
    assert found.why


CLOUD = {"n1": "NodeName=n1 State=IDLE+CLOUD+POWERED_DOWN"}


@pytest.mark.parametrize(
    ("values", "settings", "found"),
    [
        ({}, {}, "switches no node of bftrainer off (no SuspendProgram or ResumeProgram)"),
        (SAVES | {"SuspendTime": "INFINITE"}, {}, "(no SuspendTime); 1 node with State=CLOUD"),
        (SAVES, {"keep_awake_s": 60.0}, "after 300 s; 1 node with State=CLOUD; trainers leave"),
        (SAVES, {"wake_nodes": True}, "trainers wake them (wake_nodes)"),
    ],
)  # fmt: skip
def test_what_a_site_says_of_power_saving_is_shown(
    values: dict[str, str], settings: dict[str, Any], found: str
) -> None:
    facts = site(**values)
    facts = replace(facts, settings=replace(facts.settings, **settings))
    facts = replace(facts, nodes_shown=CLOUD if values else {})
    (one,) = [one for one in of(facts, Level.OK) if one.check == "power saving"]
    assert found in one.found


def test_a_depth_that_no_trainer_reaches_is_fine() -> None:
    facts = site(SchedulerParameters="bf_continue,partition_job_depth=2,bf_max_job_user_part=100")
    assert of(facts, Level.CONSIDER) == []


DEEP, WHOLE = (_DATA / "sdiag-22.05.8.txt").read_text(), "Last queue length: 500"


def test_a_queue_that_passes_do_not_come_to_the_end_of_is_found_with_what_helps() -> None:
    finding = the_one(replace(site(), passed=pass_in(DEEP)))
    assert finding.level is Level.CHANGE
    assert finding.found == "the last pass stopped after 500 tries, with 100 jobs left"
    assert [change.line.rpartition(",")[2] for change in finding.changes] == [
        *("bf_max_job_test=2000", "bf_continue", "bf_max_job_user_part=50"),
    ]


def test_what_helps_is_fine_to_the_doctor_on_a_larger_cluster_too() -> None:
    larger = "bftrainer TotalNodes=80"
    finding = the_one(replace(site(partition=larger), passed=pass_in(DEEP)))
    options = ",".join(change.line.rpartition(",")[2] for change in finding.changes)
    assert "bf_max_job_user_part=80" in options
    facts = site(partition=larger, SchedulerParameters=f"bf_interval=30,{options}")
    assert not of(replace(facts, passed=pass_in(DEEP)), Level.CHANGE, Level.CONSIDER)


@pytest.mark.parametrize(
    ("sdiag", "parameters"),
    [
        (DEEP.replace("Last queue length: 600", WHOLE), ""),
        (DEEP, ",bf_max_job_test=5000"),
        ("", ""),
    ],
)
def test_a_pass_that_comes_to_all_jobs_is_fine(sdiag: str, parameters: str) -> None:
    facts = site(SchedulerParameters=f"bf_interval=30,bf_continue{parameters}")
    assert not of(replace(facts, passed=pass_in(sdiag)), Level.CHANGE, Level.CONSIDER)


@pytest.mark.parametrize(
    ("limit", "value", "command"),
    [
        ("GrpSubmit", "1", "grpsubmitjobs=3"),
        ("MaxSubmitPU", "1", "maxsubmitjobspu=3"),
        ("GrpJobs", "1", "grpjobs=2"),
        ("MaxJobsPU", "1", "maxjobspu=2"),
        ("GrpTRES", "cpu=100,node=1", "grptres=node=2"),
        ("MaxTRESPU", "node=1", "maxtrespu=node=2"),
    ],
)
def test_a_limit_of_the_qos_below_the_nodes_is_named(limit: str, value: str, command: str) -> None:
    qos = {"idle": {limit: value}}
    facts = replace(site(partition="bftrainer QoS=idle"), qos=qos)
    assert [change.line for change in the_one(facts).changes] == [
        f"sacctmgr modify qos idle set {command}"
    ]
    qos["idle"][limit] = command.rpartition("=")[2] if "TRES" not in limit else "node=2"
    assert not of(facts, Level.CONSIDER)


@pytest.mark.parametrize(
    ("limit", "value", "level", "command"),
    [
        ("GrpSubmit", "5", Level.CHANGE, "grpsubmitjobs=15"),
        ("GrpSubmit", "12", Level.CONSIDER, "grpsubmitjobs=15"),
        ("GrpSubmit", "15", Level.OK, ""),
        ("MaxSubmitPU", "13", Level.OK, ""),
        ("GrpTRES", "node=1", Level.CHANGE, "grptres=node=12"),
        ("GrpTRES", "node=9", Level.CONSIDER, "grptres=node=12"),
        ("GrpTRES", "cpu=9,node=12", Level.OK, ""),
        ("GrpTRES", "gres/gpu=3", Level.CHANGE, "grptres=gres/gpu=8"),
        ("GrpTRES", "gres/gpu=8", Level.OK, ""),
        ("MaxTRESPU", "node=8", Level.CONSIDER, "maxtrespu=node=10"),
        ("MaxTRESPU", "node=10", Level.OK, ""),
    ],
)
def test_a_limit_is_judged_by_what_the_trainers_here_ask_for(
    limit: str, value: str, level: Level, command: str
) -> None:
    """Far more nodes than that are none of its business."""
    facts = site(partition="bftrainer QoS=idle bftrainer TotalNodes=500")
    trainers = (Asking("ann", 2, 6), Asking("ann", 1, 4), Asking("bob", 2, 2, gpus=4))
    network = replace(facts.network, trainers=trainers)
    facts = replace(facts, qos={"idle": {limit: value}}, network=network)
    (found,) = (one for one in checkup(facts) if one.check == f"idle's {limit}")
    assert found.level is level
    expected = [f"sacctmgr modify qos idle set {command}"] if command else []
    assert [change.line for change in found.changes] == expected


def test_a_plugin_that_changes_submissions_is_named_with_what_it_must_leave() -> None:
    (one,) = [one for one in of(site(JobSubmitPlugins="lua"), Level.UNKNOWN) if one.found == "lua"]
    assert "keep the record in their comment" in one.why


@pytest.mark.parametrize(
    ("states", "named"),
    [("", False), ("ANY", False), ("IDLE,ALLOC", False), ("CYCLE,ANY", False), ("CYCLE", False),
     ("IDLE", True), ("CYCLE,IDLE", True)],
)  # fmt: skip
def test_a_health_check_of_idle_nodes_alone_checks_no_trainers_node(
    states: str, named: bool
) -> None:
    facts = site(HealthCheckProgram="/usr/sbin/nhc", HealthCheckNodeState=states)
    found = of(facts, Level.CONSIDER)
    assert [change.line for one in found for change in one.changes] == (
        ["HealthCheckNodeState=ANY"] if named else []
    )


def test_changes_that_slurm_refuses_the_controller_are_named() -> None:
    network = replace(site().network, refusals=("trainer 7: Slurm refused",))
    finding = the_one(replace(site(), network=network))
    assert (finding.level, finding.found) == (Level.CHANGE, "trainer 7: Slurm refused")


def test_where_there_is_no_partition_the_whole_line_is_named() -> None:
    facts = replace(site(), partitions={})
    (found,) = [one for one in of(facts, Level.CHANGE) if one.check == "partition"]
    (change,) = found.changes
    assert change.line.startswith("PartitionName=bftrainer Nodes=ALL PriorityTier=0 PreemptMode=")


def test_other_partitions_count_only_where_they_share_nodes() -> None:
    assert not of(site(partition="main PriorityTier=0 main Nodes=m[1-2]"), Level.CHANGE)


PLUGINS = [
    (Plugin(()), {"plugin's line", "plugin loaded"}),
    (replace(site().plugin, loaded=False), {"plugin loaded"}),
    (replace(site().plugin, loaded=False, file_there=False), {"plugin loaded"}),
    (replace(site().plugin, package=""), {"elements' Python"}),
    (replace(site().plugin, package="0.0.9"), {"elements' Python"}),
    (replace(site().plugin, include="plugstack.d/*.conf"), set()),
    (replace(site().plugin, rewriting=""), set()),
    (replace(site().plugin, rewriting="/usr/bin/python3: no answer"), {"rewriting of submissions"}),
    (replace(site().plugin, lines=site().plugin.lines * 2), {"plugin's line"}),  # type: ignore[operator]
]


@pytest.mark.parametrize(("plugin", "checks"), PLUGINS)
def test_a_plugin_that_is_not_as_it_should_be(plugin: Plugin, checks: set[str]) -> None:
    facts = replace(site(), plugin=replace(plugin, loaded=bool(plugin.loaded)))
    assert {one.check for one in of(facts, Level.CHANGE)} == checks


@pytest.mark.parametrize(
    ("include", "level"),
    [("plugstack.d/*.conf", Level.CHANGE), ("/etc/bftrainer/plugstack.conf", Level.CONSIDER)],
)
def test_configless_nodes_are_not_sent_what_plugstack_conf_includes(
    include: str, level: Level
) -> None:
    facts = site(SlurmctldParameters="enable_configless")
    finding = the_one(replace(facts, plugin=replace(facts.plugin, include=include)))
    assert (finding.check, finding.level, finding.changes[0].line) == ("plugin's line", level, LINE)


PYXIS = "required /usr/lib/slurm/spank_pyxis.so"
ORDERS = {
    "ours after it": ((PYXIS, LINE), ""),
    "ours before it": ((LINE, "", PYXIS), PYXIS),
    "ours before it, in files of their own": (("include plugstack.d/*",), PYXIS),
    "it is a comment": ((LINE, f"# {PYXIS}"), ""),
    "ours is not there": ((PYXIS,), ""),
}


@pytest.mark.parametrize(("lines", "late"), ORDERS.values(), ids=ORDERS)
def test_ours_has_to_be_loaded_after_pyxis(
    tmp_path: Path, lines: tuple[str, ...], late: str
) -> None:
    (tmp_path / "plugstack.d").mkdir()
    (tmp_path / "plugstack.d" / "bftrainer.conf").write_text(f"{LINE}\n")
    (tmp_path / "plugstack.d" / "pyxis.conf").write_text(f"{PYXIS}\n")
    plugstack = tmp_path / "plugstack.conf"
    plugstack.write_text("\n".join(lines))
    assert pyxis_after_ours(line for _, line in read_lines(plugstack)) == late


def test_an_order_that_hides_our_package_in_containers_is_told_with_its_remedy() -> None:
    finding = the_one(replace(site(), plugin=replace(site().plugin, pyxis_after=PYXIS)))
    assert (finding.check, finding.level) == ("plugin's line", Level.CONSIDER)
    assert finding.why.endswith(f"Put BFTrainer's line after this one: {PYXIS}")


def test_nodes_whose_elements_never_say_that_they_are_up_are_named() -> None:
    network = replace(site().network, mute=("n2", "n3"))
    finding = the_one(replace(site(), network=network))
    assert (finding.check, finding.found[:7]) == ("plugin on the nodes", "n2, n3:")


NETWORKS = [
    (Network({}, "", ""), "keeper's address"),
    (Network({"ctl.example.org": ("127.0.1.1",)}, "", ""), "keeper's address"),
    (Network(site().network.resolved, "Connection refused", ""), "keeper answers"),
    (Network(site().network.resolved, "", "stopped"), "controller answers"),
]


@pytest.mark.parametrize(("network", "check"), NETWORKS)
def test_a_keeper_that_nodes_do_not_reach(network: Network, check: str) -> None:
    (found,) = of(replace(site(), network=network), Level.CHANGE)
    assert found.check == check


def test_a_reader_that_does_not_run_is_named_and_is_no_fault() -> None:
    facts = replace(site(), network=replace(site().network, reader="no reader answers"))
    assert "reader answers" in [one.check for one in of(facts, Level.CONSIDER)]
    assert of(facts, Level.CHANGE) == []


def test_before_the_installation_nobody_has_to_answer() -> None:
    facts = replace(site(), plugin=Plugin((), loaded=False))
    silent = replace(facts, network=Network(facts.network.resolved, "refused", "refused"))
    assert of(silent, Level.CHANGE) == of(facts, Level.CHANGE)


@pytest.mark.parametrize("port", [6817, 6818, 6820])
def test_a_port_of_slurms_own_is_not_the_keepers(port: int) -> None:
    address = f"ctl.example.org:{port}"
    facts = site(line=LINE.replace(KEEPER, address), SlurmctldPort="6817")
    (found,) = of(replace(facts, settings=replace(facts.settings, listen=address)), Level.CHANGE)
    assert (found.check, f"{port} is the port of slurm" in found.found) == ("keeper's port", True)


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"clock_ahead_s": -40.0}, "clocks"),
        ({"key": "/etc/bftrainer/bftrainer.key is open to others; chmod 600 it"}, "site's key"),
        ({"state_owner": "mallory"}, "state folder"),
        ({"state_owner": "slurm", "state_mode": 0o777}, "state folder"),
    ],
)
def test_a_host_that_is_not_as_it_should_be(changes: dict[str, object], check: str) -> None:
    (found,) = of(here(site(), **changes), Level.CHANGE)
    assert found.check == check


@pytest.mark.parametrize(("level", "known"), [("Operator", True), ("None", False), (None, False)])
def test_an_account_needs_an_operators_rights(level: str | None, known: bool) -> None:
    unknown = of(here(site(), user="carol", admin_level=level), Level.UNKNOWN)
    assert ("account" in {one.check for one in unknown}) is not known


def test_the_sites_key_is_looked_at_by_who_can_read_it() -> None:
    unknown = of(here(site(), user="slurm", key=None), Level.UNKNOWN)
    (found,) = (one.found for one in unknown if one.check == "site's key")
    assert found.startswith("slurm cannot read /etc/")


def test_without_munge_people_see_less_and_trainers_train() -> None:
    assert of(here(site(AuthType="auth/slurm"), munge=None), Level.CHANGE, Level.CONSIDER) == []
    (found,) = of(here(site(), munge="munged is silent"), Level.CONSIDER)
    assert found.check == "MUNGE"


def test_the_trainers_qos_is_written_into_the_plugins_line() -> None:
    (found,) = of(site(PreemptType="preempt/qos"), Level.CHANGE)
    assert [change.line for change in found.changes] == [f"{LINE.split()[1]} qos=NAME"]


LIMITS = {"AccountingStorageType": "accounting_storage/slurmdbd", "MaxJobCount": "10000"}


@pytest.mark.parametrize(
    ("qos", "limit", "enforce", "lines"),
    [
        (
            *("N/A", "", "none"),
            [
                "sacctmgr add qos bftrainer set grpsubmitjobs=2500",
                "PartitionName=bftrainer QOS=bftrainer",
                "AccountingStorageEnforce=limits",
            ],
        ),
        ("idle", "", "limits,qos", ["sacctmgr modify qos idle set grpsubmitjobs=2500"]),
        ("idle", "900", "associations", ["AccountingStorageEnforce=associations,limits"]),
        ("idle", "900", "safe", []),
    ],
)
def test_a_limit_keeps_trainers_from_filling_the_job_table(
    qos: str, limit: str, enforce: str, lines: list[str]
) -> None:
    facts = site(
        **LIMITS, AccountingStorageEnforce=enforce, partition=f"bftrainer QoS={qos}", SlurmUser="x"
    )
    facts = replace(facts, qos={"idle": {"GrpSubmit": limit}})
    (found,) = (one for one in checkup(facts) if one.check == "GrpSubmitJobs")
    assert [change.line for change in found.changes] == lines
    assert (found.level is Level.OK) == (not lines)


def test_a_qos_that_cannot_be_read_is_no_limit() -> None:
    facts = site(**LIMITS, partition="bftrainer QoS=idle")
    (found,) = (one for one in checkup(facts) if one.check == "GrpSubmitJobs")
    assert found.level is Level.UNKNOWN


def test_a_site_that_preempts_by_qos_has_one_for_trainers() -> None:
    facts = site(line=LINE + " qos=idle", PreemptType="preempt/qos")
    rows = {"idle": {"Preempt": "", "PreemptMode": "cluster"}, "normal": {"Preempt": "idle"}}
    assert not of(replace(facts, qos=rows), Level.CHANGE)
    cancelled = replace(
        site(line=LINE + " qos=idle", PreemptType="preempt/qos", PreemptMode="CANCEL"), qos=rows
    )
    (found,) = of(cancelled, Level.CHANGE)
    assert found.found == "idle has PreemptMode=CANCEL"
    exempt = {**rows, "idle": rows["idle"] | {"PreemptExemptTime": "00:05:00"}}
    (found,) = of(replace(facts, qos=exempt), Level.CHANGE)
    assert found.found == "idle has PreemptExemptTime=00:05:00"
    others = rows | {"long": {"Preempt": ""}}
    (found,) = of(replace(facts, qos=others), Level.CHANGE)
    assert [change.line for change in found.changes] == [
        "sacctmgr modify qos long set preempt+=idle"
    ]


def test_scripts_that_newer_slurms_number_are_read() -> None:
    numbered = CONFIG.replace("Epilog                  = (null)", "Epilog[0] = /etc/slurm/e.sh")
    assert values_in(numbered)["Epilog"] == "/etc/slurm/e.sh"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("30 sec", 30), ("00:10:00", 600), ("1-00:00:01", 86401), ("0", 0), ("soon", None)],
)
def test_times_are_read_as_scontrol_shows_them(said: str, seconds: float | None) -> None:
    assert seconds_of(said) == seconds
