"""What the doctor takes for good, and how it reads a site; of mistakes: test_findings."""

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
from tests.doctor.made import CONFIG, LINE, here, of, site

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
# Settings, the check that speaks, its level, and the line that it asks for.
SAVES = {"SuspendProgram": "/sbin/off", "ResumeProgram": "/sbin/on", "SuspendTime": "300 sec"}
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


def test_what_helps_is_fine_to_the_doctor_on_a_larger_cluster_too() -> None:
    larger = "bftrainer TotalNodes=80"
    (finding,) = of(replace(site(partition=larger), passed=pass_in(DEEP)), Level.CHANGE)
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
    ("limit", "value", "level", "command"),
    [
        ("GrpSubmit", "5", Level.CHANGE, "grpsubmitjobs=15"),
        ("GrpSubmit", "15", Level.CONSIDER, "grpsubmitjobs=22"),
        ("GrpSubmit", "17", Level.OK, ""),
        ("MaxSubmitPU", "13", Level.CONSIDER, "maxsubmitjobspu=19"),
        ("MaxSubmitPU", "14", Level.OK, ""),
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


@pytest.mark.parametrize("states", ["", "ANY", "IDLE,ALLOC", "CYCLE,ANY", "CYCLE"])
def test_a_health_check_of_nodes_in_use_too_is_fine(states: str) -> None:
    facts = site(HealthCheckProgram="/usr/sbin/nhc", HealthCheckNodeState=states)
    assert not of(facts, Level.CHANGE, Level.CONSIDER)


@pytest.mark.parametrize("changes", [{"include": "plugstack.d/*.conf"}, {"rewriting": ""}])
def test_a_plugin_whose_line_is_included_and_whose_python_answers_is_fine(
    changes: dict[str, str],
) -> None:
    facts = replace(site(), plugin=replace(site().plugin, **changes))  # type: ignore[arg-type]
    assert not of(facts, Level.CHANGE, Level.CONSIDER)


def test_other_partitions_count_only_where_they_share_nodes() -> None:
    assert not of(site(partition="main PriorityTier=0 main Nodes=m[1-2]"), Level.CHANGE)


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


def test_before_the_installation_nobody_has_to_answer() -> None:
    facts = replace(site(), plugin=Plugin((), loaded=False))
    silent = replace(facts, network=Network(facts.network.resolved, "refused", "refused"))
    assert of(silent, Level.CHANGE) == of(facts, Level.CHANGE)


@pytest.mark.parametrize(("level", "known"), [("Operator", True), ("None", False), (None, False)])
def test_an_account_needs_an_operators_rights(level: str | None, known: bool) -> None:
    unknown = of(here(site(), user="carol", admin_level=level), Level.UNKNOWN)
    assert ("account" in {one.check for one in unknown}) is not known


def test_the_sites_key_is_looked_at_by_who_can_read_it() -> None:
    unknown = of(here(site(), user="slurm", key=None), Level.UNKNOWN)
    (found,) = (one.found for one in unknown if one.check == "site's key")
    assert found.startswith("slurm cannot read /etc/")


def test_a_site_without_munge_is_fine() -> None:
    assert of(here(site(AuthType="auth/slurm"), munge=None), Level.CHANGE, Level.CONSIDER) == []


LIMITS = {"AccountingStorageType": "accounting_storage/slurmdbd", "MaxJobCount": "10000"}


def test_a_limit_keeps_trainers_from_filling_the_job_table() -> None:
    facts = site(**LIMITS, AccountingStorageEnforce="safe", partition="bftrainer QoS=idle")
    facts = replace(facts, qos={"idle": {"GrpSubmit": "900"}})
    (found,) = (one for one in checkup(facts) if one.check == "GrpSubmitJobs")
    assert found.level is Level.OK


def test_a_qos_that_cannot_be_read_is_no_limit() -> None:
    facts = site(**LIMITS, partition="bftrainer QoS=idle")
    (found,) = (one for one in checkup(facts) if one.check == "GrpSubmitJobs")
    assert found.level is Level.UNKNOWN


def test_a_site_that_preempts_by_qos_has_one_for_trainers() -> None:
    facts = site(line=LINE + " qos=idle", PreemptType="preempt/qos")
    rows = {"idle": {"Preempt": "", "PreemptMode": "cluster"}, "normal": {"Preempt": "idle"}}
    assert not of(replace(facts, qos=rows), Level.CHANGE)


def test_scripts_that_newer_slurms_number_are_read() -> None:
    numbered = CONFIG.replace("Epilog                  = (null)", "Epilog[0] = /etc/slurm/e.sh")
    assert values_in(numbered)["Epilog"] == "/etc/slurm/e.sh"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("30 sec", 30), ("00:10:00", 600), ("1-00:00:01", 86401), ("0", 0), ("soon", None)],
)
def test_times_are_read_as_scontrol_shows_them(said: str, seconds: float | None) -> None:
    assert seconds_of(said) == seconds
