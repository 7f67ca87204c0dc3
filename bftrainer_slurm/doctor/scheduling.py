"""Checks when Slurm's schedulers run; docs/ordinary-jobs.md says what each setting does."""

from __future__ import annotations

from collections.abc import Iterator

from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Finding, conf, consider, in_scheduler, must, ok
from bftrainer_slurm.slurm.configuration import backfill_depth, backfill_s

_LONG_INTERVAL_S, _LONG_DELAY_S = 60.0, 10.0
_DELAY_S = 3.0  # Slurm's own batch_sched_delay
_DEPTH = 100  # trainers seldom take more nodes at once
_RESOLUTION_S = 60.0  # Slurm's own bf_resolution
_BACKFILL_DEPTHS = ("bf_max_job_part", "bf_max_job_user_part")
_OF_ONE = 50  # jobs of a user in a partition that are worth a try in each pass
_DEPTH_SEEN = (
    "four elements, 22.05.8: 17 s in place of 1 s with partition_job_depth=1; while a large job "
    "waits, more than 130 s in place of 15 s with bf_max_job_user=1"
)


def check(facts: Facts) -> Iterator[Finding]:
    """Check the schedulers."""
    interval_s = backfill_s(facts.values)
    if interval_s is None:
        value = facts.scheduler("bf_interval") or facts.value("SchedulerType")
        why = (
            "Without backfill the first job of the queue blocks all others. Trainers then take "
            "idle nodes at once, and leave for a waiting job at each look."
        )
        yield consider("backfill", f"none ({value})", why, conf("SchedulerType", "sched/backfill"))
    else:
        yield _bf_interval(interval_s)
        yield _bf_max_time(facts, interval_s)
        yield _bf_continue(facts)
        yield _bf_resolution(facts)
        yield _whole_queue(facts)
        yield _of_user(facts)
    yield from _depths(facts, with_backfill=interval_s is not None)
    yield _complete_wait(facts)
    yield _sched_delay(facts)


def _bf_interval(interval_s: float) -> Finding:
    why = "Trainers get nodes in backfill passes, and a job that misses a pass waits for the next."
    change, fine = in_scheduler("bf_interval", "30"), interval_s <= _LONG_INTERVAL_S
    return consider("bf_interval", f"{interval_s:g} s", why, change, unless=fine)


def _bf_max_time(facts: Facts, interval_s: float) -> Finding:
    value = facts.scheduler("bf_max_time") or ""
    if not value.isdigit() or float(value) >= interval_s:
        return ok("bf_max_time", f"{value or format(interval_s, 'g')} s")
    why = (
        "A pass that ends early has not tried all jobs. The controller assumes that a job that "
        "still waits after a pass needs something other than nodes."
    )
    return consider(
        "bf_max_time", f"{value} s", why, in_scheduler("bf_max_time", f"{interval_s:g}")
    )


def _bf_continue(facts: Facts) -> Finding:
    if facts.scheduler("bf_continue") is not None:
        return ok("bf_continue", "set")
    why = (
        "Without it a pass ends at its first pause (bf_yield_interval, 2 s) if any job has "
        "changed, and trainers' elements change often. It matters if passes take longer."
    )
    return consider("bf_continue", "not set", why, in_scheduler("bf_continue"))


def _bf_resolution(facts: Facts) -> Finding:
    value = facts.scheduler("bf_resolution") or ""
    resolution_s = float(value) if value.isdigit() else _RESOLUTION_S
    why = (
        "Backfill plans starts in steps of so many seconds. The controller reckons with whole "
        "minutes: with longer steps it keeps nodes for jobs that this pass does not start."
    )
    change, fine = in_scheduler("bf_resolution", "60"), resolution_s <= _RESOLUTION_S
    return consider("bf_resolution", f"{resolution_s:g} s", why, change, unless=fine)


def _whole_queue(facts: Facts) -> Finding:
    """Check that passes come to the end of the queue, where elements are."""
    title, most = "bf_max_job_test", backfill_depth(facts.values)
    passed = facts.passed
    if passed is None or not passed.stopped_early(most):
        return ok(
            title, f"{most} tries in a pass" + (", enough for the last one" if passed else "")
        )
    enough = -(-2 * (passed.tried + passed.left) // 1000) * 1000
    of_one = max(_OF_ONE, _at_once(facts))
    why = (
        "Trainers come last in the queue: no pass comes to them, and none starts. Let a pass try "
        f"all jobs. {of_one} of each user and partition are enough to try, so a pass gets shorter."
    )
    changes = [in_scheduler(title, str(enough)), in_scheduler("bf_continue")]
    if not any(facts.scheduler(one) for one in _BACKFILL_DEPTHS):
        changes.append(in_scheduler("bf_max_job_user_part", str(of_one)))
    found = f"the last pass stopped after {passed.tried} tries, with {passed.left} jobs left"
    return must(title, found, why, *changes)


def _of_user(facts: Facts) -> Finding:
    """Check for a limit that counts a user's ordinary jobs and elements together."""
    title = "bf_max_job_user"
    value = facts.scheduler(title) or "0"
    why = (
        f"A user with {value} waiting ordinary jobs gets no element: a pass counts both together, "
        "and elements come last. Count by partition instead."
    )
    of_one = max(int(value) if value.isdigit() else 0, _at_once(facts))
    changes = (in_scheduler(title, "0"), in_scheduler("bf_max_job_user_part", str(of_one)))
    found = "no limit" if value == "0" else value
    return consider(title, found, why, *changes, unless=value == "0")


def _depths(facts: Facts, with_backfill: bool) -> Iterator[Finding]:
    """Check how many jobs of one partition or user a pass looks at; each element is a job."""
    for option in ("partition_job_depth", *(_BACKFILL_DEPTHS if with_backfill else ())):
        value = facts.scheduler(option) or "0"
        limit = int(value) if value.isdigit() else 0
        why = (
            f"Trainers release an element for each node that they take. A pass looks at {limit} "
            f"of them, and the others wait for later passes ({_DEPTH_SEEN})."
        )
        fine = not 0 < limit < _at_once(facts)
        change = in_scheduler(option, str(_DEPTH))
        yield consider(option, value if limit else "no limit", why, change, unless=fine)


def _at_once(facts: Facts) -> int:
    """Return how many elements a pass is to look at: as many as trainers may take nodes at once."""
    return min(facts.nodes, _DEPTH)


def _complete_wait(facts: Facts) -> Finding:
    wait_s = facts.seconds("CompleteWait") or 0.0
    why = "Backfill waits while any job is completing, and elements complete often."
    change = conf("CompleteWait", "0")
    return must("CompleteWait", f"{wait_s:g} s", why, change, unless=not wait_s)


def _sched_delay(facts: Facts) -> Finding:
    value = facts.scheduler("batch_sched_delay") or ""
    delay_s = float(value) if value.isdigit() else _DELAY_S
    why = "Slurm lets a batch job wait this long, and a node that a trainer has left stays idle."
    change, fine = in_scheduler("batch_sched_delay", f"{_DELAY_S:g}"), delay_s <= _LONG_DELAY_S
    return consider("batch_sched_delay", f"{delay_s:g} s", why, change, unless=fine)
