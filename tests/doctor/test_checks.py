"""What the doctor takes for good, and how it reads a site; of mistakes: test_findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer_slurm.doctor.checkup import checkup
from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Level
from bftrainer_slurm.doctor.gather import clock_ahead_s
from bftrainer_slurm.doctor.plugstack import pyxis_after_ours, read_lines
from bftrainer_slurm.slurm.configuration import pass_in, seconds_of, values_in
from tests.doctor.made import CONFIG, LINE, PASS, PYXIS, QOS, but, shares, site

BETTER_PASS = PASS.replace("Last queue length: 600", "Last queue length: 500")
TESTED = "bf_interval=30,bf_continue,bf_max_job_test=5000"
LARGER = f"{TESTED},bf_max_job_user_part=80"
FINE: dict[str, Facts] = {
    "a good site": site(),
    "a pass that comes to all jobs": replace(site(), passed=pass_in(BETTER_PASS)),
    "a pass that may come to all jobs": replace(
        site(SchedulerParameters=TESTED), passed=pass_in(PASS)
    ),
    "enough for a trainer on a larger cluster": site(
        partition="bftrainer TotalNodes=80", SchedulerParameters=LARGER
    ),
    "no pass yet": replace(site(), passed=pass_in("")),
    "the plugin's line is included": but(site(), "plugin", include="plugstack.d/*.conf"),
    "the rewriting's Python answers": but(site(), "plugin", rewriting=""),
    "no munge": but(site(AuthType="auth/slurm"), "host", munge=None),
    "a qos for trainers": replace(
        site(line=LINE + " qos=idle", PreemptType="preempt/qos"), qos=QOS
    ),
    "shared nodes": shares(),
    **{
        f"shared nodes, {said}": shares(partition=f"bftrainer {said}", DefMemPerCPU="UNLIMITED")
        for said in ("DefMemPerNode=8000", "JobDefaults=DefMemPerGPU=1000")
    },
}


@pytest.mark.parametrize("facts", FINE.values(), ids=FINE)
def test_nothing_is_to_change_where_all_is_well(facts: Facts) -> None:
    open_questions = {one.check for one in checkup(facts) if one.level is not Level.OK}
    assert open_questions == {"Epilog", "elements' Python"}  # which cannot be seen from here


@pytest.mark.parametrize(
    ("told_s", "ahead_s"), [(99.0, -1.0), (100.0, 0.0), (120.0, 0.0), (130.0, 0.0), (140.0, 10.0)]
)
def test_a_clock_that_was_told_slowly_may_be_right(told_s: float, ahead_s: float) -> None:
    assert clock_ahead_s(told_s, began_s=100.0, ended_s=130.0) == ahead_s


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
    for name, line in (("bftrainer", LINE), ("pyxis", PYXIS)):
        (tmp_path / "plugstack.d" / f"{name}.conf").write_text(f"{line}\n")
    plugstack = tmp_path / "plugstack.conf"
    plugstack.write_text("\n".join(lines))
    assert pyxis_after_ours(line for _, line in read_lines(plugstack)) == late


def test_scripts_that_newer_slurms_number_are_read() -> None:
    numbered = CONFIG.replace("Epilog                  = (null)", "Epilog[0] = /etc/slurm/e.sh")
    assert values_in(numbered)["Epilog"] == "/etc/slurm/e.sh"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("30 sec", 30), ("00:10:00", 600), ("1-00:00:01", 86401), ("0", 0), ("soon", None)],
)
def test_times_are_read_as_scontrol_shows_them(said: str, seconds: float | None) -> None:
    assert seconds_of(said) == seconds
