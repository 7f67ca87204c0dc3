"""The planner has a plan in any case: children that crash, hang, lie or are not there."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner import solver
from bftrainer_slurm.planner.greedy import greedy_shares
from bftrainer_slurm.planner.problem import Costs, Plan, Problem
from bftrainer_slurm.planner.solver import Planner
from scripts.labcluster.waiting import wait_until
from tests.planner.problems import HARD, planned, problem

CASE = problem(4, planned("a", "n0"), planned("b"))
READY = "print('{\"ready\": true}', flush=True); "
HANG_BOUND_S = 60.0  # generous: for a hang, not for slowness


def saying(*lines: str) -> str:
    """A child that answers every problem with these lines."""
    text = "\n".join(lines)
    return READY + f"import sys\nfor _ in sys.stdin: print({text!r}, flush=True)"


def plan_with(code: str, case: Problem = CASE, time_limit_s: float | None = None) -> Plan:
    # Only a child that goes on for ever is to run into the limit, also on a busy host.
    limit_s = time_limit_s or (3.0 if "sleep" in code or "while" in code else 50.0)
    with Planner(time_limit_s=limit_s, command=(sys.executable, "-c", code)) as planner:
        if READY in code:
            planner.warm_up()  # a busy host may take the whole limit to start it
        begin_s = time.monotonic()
        plan = planner.plan(case)
    assert time.monotonic() - begin_s < HANG_BOUND_S
    return plan


UNUSABLE = {
    "crashes at the start": ("import os; os.abort()", "died of signal 6"),
    "crashes over a problem": (READY + "input(); import os; os.abort()", "died of signal 6"),
    "ends at once": ("", "ended with exit code 0"),
    "never starts": ("import time; time.sleep(600)", "not started yet"),
    "never answers": (READY + "import time; time.sleep(600)", "did not answer in time"),
    "stops half way through a line": (
        READY + "import time; print('{\"coun', end='', flush=True); time.sleep(600)",
        "did not answer in time",
    ),
    "closes its pipe": (
        *(READY + "input(); import os, time; os.close(1); time.sleep(600)", "closed its pipe"),
    ),
    "greets with something else": ("print('hello')", "nonsense"),
    "cannot start and says so": ('print(\'{"error": "no CBC"}\')', "cannot start: no CBC"),
    "answers no JSON": (saying("hello"), "nonsense"),
    "answers deep nesting": (saying("[" * 100_000), "nonsense"),
    "answers an error": (saying('{"error": "no"}'), "failed: no"),
    "found nothing": (saying('{"optimal": false}'), "not a plan"),
    "answers without shares": (saying("{}"), "not a plan"),
    "answers texts": (saying('{"shares": [["1"], ["1"]]}'), "nonsense"),
    "answers too few": (saying('{"shares": [[1]]}'), "breaks a bound"),
    "answers too large": (saying('{"shares": [[4], [4]]}'), "breaks a bound"),
    "answers a negative": (saying('{"shares": [[-1], [1]]}'), "breaks a bound"),
    "claims that worse than greedy is best": (
        saying('{"shares": [[0], [0]]}', '{"optimal": true}'),
        "worse than the greedy plan",
    ),
}


@pytest.mark.parametrize(("code", "reason"), UNUSABLE.values(), ids=UNUSABLE)
def test_falls_back_to_greedy_when_the_child(code: str, reason: str) -> None:
    plan = plan_with(code)
    assert plan.status == "greedy"
    assert reason in plan.reason
    assert [(len(plan.assignment[key]),) for key in "ab"] == greedy_shares(CASE)


def test_falls_back_to_greedy_when_the_child_never_stops_talking() -> None:
    # 16 MB of it take a moment, on a busy host a long one.
    plan = plan_with(READY + "\nwhile True: print('0' * 10**6, end='')", time_limit_s=50.0)
    assert (plan.status, plan.reason) == ("greedy", "the solver sends too much")


def test_falls_back_to_greedy_when_a_large_problem_is_not_even_read() -> None:
    wide = problem(2000, *(planned(f"t{index}") for index in range(2000)))
    assert plan_with(READY + "import time; time.sleep(600)", wide).status == "greedy"


def test_says_and_logs_which_program_or_solver_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    with Planner(command=("/nowhere/python",)) as planner:
        plan = planner.plan(CASE)
    missing = "the solver cannot be started: No such file or directory"
    assert (plan.status, plan.reason) == ("greedy", missing)
    assert f"greedy plan: {missing}" in caplog.text
    without = "import sys; sys.modules['mip'] = None; "
    plan = plan_with(without + "from bftrainer_slurm.planner.child import main; main()")
    assert plan.status == "greedy"
    assert "install bftrainer-slurm with its extra 'controller'" in plan.reason


BETTER = problem(3, planned("a", bounds=(2, 2)), planned("b", bounds=(3, 3)))
AS_GOOD, BEST = '{"shares": [[2], [0]]}', '{"shares": [[0], [3]]}'
LOST = {
    "is done, but not sure": ("", ""),
    "crashes": ("import os; os.abort()", "the solver died of signal 6"),
    "hangs": ("import time; time.sleep(600)", "the solver did not answer in time"),
    "goes on and on": (
        f"while True: print('{AS_GOOD}', flush=True)",
        "the solver did not finish in time",
    ),
    "fails": ('print(\'{"error": "no"}\', flush=True)', "the solver failed: no"),
    "breaks a bound": ("print('{\"shares\": [[3], [3]]}', flush=True)", "breaks a bound"),
    "comes to something worse": (f"print('{AS_GOOD}', flush=True)", ""),
}


@pytest.mark.parametrize(("then", "reason"), LOST.values(), ids=LOST)
def test_the_best_plan_so_far_is_taken_where_the_solver(then: str, reason: str) -> None:
    done = "print('{\"optimal\": false}', flush=True)"
    lines = (READY, "input()", f"print('{AS_GOOD}', flush=True)", f"print('{BEST}', flush=True)")
    plan = plan_with("\n".join((*lines, then, done)), BETTER)
    assert {key: len(nodes) for key, nodes in plan.assignment.items()} == {"a": 0, "b": 3}
    assert plan.status == "feasible"
    assert reason in plan.reason


def test_keeps_the_greedy_plan_where_the_child_has_not_come_so_far_in_time() -> None:
    plan = plan_with(saying('{"shares": [[0], [0]]}', '{"optimal": false}'))
    assert plan.status == "feasible"
    assert [(len(plan.assignment[key]),) for key in "ab"] == greedy_shares(CASE)


BROKEN = "from bftrainer_slurm.planner import child, optimum; import os, time\n"
CRASHES = BROKEN + "optimum.CountModel = lambda *given: os.abort(); child.main()"
HANGS = BROKEN + "optimum.CountModel = lambda *given: time.sleep(600); child.main()"


@pytest.mark.parametrize("code", [CRASHES, HANGS], ids=["crashes", "hangs"])
@pytest.mark.parametrize(
    "case", [replace(HARD, classes=()), HARD], ids=["nodes alike", "two classes"]
)
def test_what_was_found_before_cbc_is_not_lost_when_it(code: str, case: Problem) -> None:
    # A child that has 0.03 s of processor time to find it needed 0.6 s at load 42 on two cores.
    with Planner(time_limit_s=10.0, command=(sys.executable, "-P", "-c", code)) as planner:
        planner.warm_up()
        plan = planner.plan(case)
    assert plan.status == "feasible"
    assert plan.objective >= 1180


# The garbage collector runs wherever cffi parses a type, which it does under a lock.
COLLECTS = """
import gc, cffi.cparser
parse_type = cffi.cparser.Parser.parse_type
def parse_after_a_collection(*given):
    gc.collect()
    return parse_type(*given)
cffi.cparser.Parser.parse_type = parse_after_a_collection
from bftrainer_slurm.planner import child
child.main()
"""


def test_a_model_may_end_while_the_next_one_is_made() -> None:
    assert plan_with(COLLECTS, HARD).status == "optimal"


def test_takes_an_optimum_that_rounding_alone_puts_below_the_greedy_plan() -> None:
    tenth = ThroughputCurve((0, 1), (0.0, 0.1))
    cost = math.nextafter(0.3 * 0.1, 0.0)  # of a start: it gains 3e-18
    starts = replace(planned(bounds=(1, 1), curve=tenth), start_cost=cost)
    case = problem(1, starts, forward_time_s=0.3, costs=Costs.PAUSE)
    assert greedy_shares(case) == [(1,)]
    assert plan_with(saying('{"shares": [[0]]}', '{"optimal": true}'), case).status == "optimal"


def test_a_child_stays_over_plans_and_another_one_comes_where_it_was_killed_or_hung() -> None:
    with Planner(time_limit_s=HANG_BOUND_S) as planner:
        planner.warm_up()
        first = child_of(planner)
        assert [planner.plan(CASE).status for _ in range(3)] == ["optimal"] * 3
        assert child_of(planner) == first
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: planner._worker.has_ended())
        assert planner.plan(CASE).status == "optimal"
        second = child_of(planner)
        os.kill(second, signal.SIGSTOP)
        planner._time_limit_s = 0.2
        assert planner.plan(CASE).status == "greedy"
        planner._time_limit_s = HANG_BOUND_S
        planner.warm_up()
        assert planner.plan(CASE).status == "optimal"
        third = child_of(planner)
    assert len({first, second, third}) == 3
    assert not any(map(is_running, (first, second, third)))


def test_a_plan_that_raised_leaves_no_answer_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Planner(time_limit_s=HANG_BOUND_S) as planner:
        planner.warm_up()
        with monkeypatch.context() as broken, pytest.raises(MemoryError):
            broken.setattr(solver, "greedy_shares", Mock(side_effect=MemoryError))
            planner.plan(CASE)
        plan = planner.plan(BETTER)
    assert (plan.status, len(plan.assignment["b"])) == ("optimal", 3)


def test_the_child_ends_when_its_planner_is_killed() -> None:
    code = (
        "import time; from bftrainer_slurm.planner.solver import Planner\n"
        "planner = Planner(); planner.warm_up()\n"
        "print(planner._worker._process.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen((sys.executable, "-c", code), stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    wait_until(lambda: not is_running(child))


def test_nothing_in_the_current_folder_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mip.py").write_text("raise SystemExit('taken from the current folder')")
    monkeypatch.chdir(tmp_path)
    with Planner(time_limit_s=HANG_BOUND_S) as planner:
        assert planner.plan(CASE).status == "optimal"


def test_nothing_that_the_solver_prints_can_be_taken_for_an_answer() -> None:
    chatty = (
        "from bftrainer_slurm.planner import child, optimum; import os\n"
        "solve = optimum.incumbents\n"
        "def loud(*args): os.write(1, b'{}\\n'); return solve(*args)\n"
        "optimum.incumbents = loud; child.main()"
    )
    assert plan_with(chatty).status == "optimal"


def child_of(planner: Planner) -> int:
    return planner._worker._process.pid


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
