"""``bftrainer plan``: solves and explains one planning problem."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from bftrainer_slurm.cli.common import fail, print_either, print_json
from bftrainer_slurm.cli.endpoint import personal_state, state_option
from bftrainer_slurm.cli.options import count, json_option, number
from bftrainer_slurm.controller.state.history import HistoryError
from bftrainer_slurm.planner.instance import InstanceError, document_of, parse, read_instance
from bftrainer_slurm.planner.problem import Plan, PlannedTrainer, Problem, gpus_of
from bftrainer_slurm.reader.past import past_problem
from bftrainer_slurm.reader.sentences import nodes, size_range
from bftrainer_slurm.words import counted

SCHEMA = 1


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--from-history",
    "back",
    help="Instead of FILE, the problem that the controller planned N plans ago; 1 is its last.",
    **count("N", 1, 100),
)
@state_option
@click.option(
    "--problem",
    "shown",
    is_flag=True,
    help="Print the problem as JSON, to keep it in a file.",
)
@click.option(
    "--time-limit",
    help="After this time take the best plan found so far.",
    **number("SECONDS", 0.1, 86400, 60.0),
)
@json_option
def plan(
    file: Path | None,
    back: int | None,
    state: Path | None,
    shown: bool,
    time_limit: float,
    as_json: bool,
) -> None:
    """Solve the planning problem in FILE: how many nodes each trainer should have, and why.

    FILE is JSON, - is the standard input; docs/internals/files.md has its keys.

    \b
    Examples:
      bftrainer plan problem.json --json
      bftrainer plan --from-history 1 --problem > problem.json
    """
    from bftrainer_slurm.planner.solver import Planner

    problem = _load_problem(file, back, state or personal_state())
    if shown:
        print_json(document_of(problem))
        return
    with Planner(time_limit_s=time_limit) as planner:
        planner.warm_up()
        found = planner.plan(problem)
    print_either(_document(problem, found), _lines(problem, found), as_json)


def _load_problem(file: Path | None, back: int | None, state: Path) -> Problem:
    """Return the problem in a file or in the controller's history; end the command without one."""
    if (file is None) == (back is None):
        fail("give either a FILE or --from-history N")
    try:
        if file is not None:
            return read_instance(Path("/dev/stdin") if file == Path("-") else file)
        assert back is not None
        history = state / "history.sqlite"
        if not history.exists():
            fail(f"there is no {history}; name the controller's state folder by --state")
        return parse(past_problem(history, back))
    except (HistoryError, InstanceError, ValueError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}; name a --state that you may read")


def _document(problem: Problem, found: Plan) -> dict[str, Any]:
    nodes = [found.assignment[trainer.key] for trainer in problem.trainers]
    return {
        "schema": SCHEMA,
        "objective": found.objective,
        "bound": found.bound,
        "nodes": [len(names) for names in nodes],
        "solve_s": found.solve_s,
        "status": found.status,
        "reason": found.reason,
        "gpus": [trainer.gpus for trainer in problem.trainers],
        "placement": [sorted(names) for names in nodes],
    }


def _lines(problem: Problem, found: Plan) -> Iterator[str]:
    """Yield the lines for people."""
    used = len(frozenset[str]().union(*found.assignment.values()))
    made = f"{found.status}, {found.solve_s:.3f} s"
    yield f"objective {found.objective:.6g} ({made}), {used} of {nodes(len(problem.pool))} used"
    if gpus := gpus_of(problem, found):
        yield f"{gpus[1]:,} of {counted(gpus[0], 'GPU')} used that no ordinary job has"
    if found.bound is not None:
        below = max(0.0, found.bound - found.objective) / abs(found.bound or 1.0)
        yield f"at most {100 * below:.2g} % below the best: no room was found for better counts"
    if found.reason:
        yield f"because: {found.reason}"
    yield "TRAINER  NODES       CHANGE     WHY"
    for trainer in problem.trainers:
        now, count = len(trainer.current), len(found.assignment[trainer.key])
        why = _reason(problem, trainer, count)
        yield f"{trainer.key:<9}{f'{now} -> {count}':<12}{_change(now, count):<11}{why}".rstrip()


def _reason(problem: Problem, trainer: PlannedTrainer, count: int) -> str:
    now, forward_s = len(trainer.current), problem.forward_time_s
    if count == now:
        return ""
    gain = forward_s * (trainer.rate(count) - trainer.rate(now))
    cost = problem.rescale_cost(trainer, count)
    why = f"{gain:+.6g} over {forward_s:g} s, rescaling costs {cost:.6g}"
    if not trainer.allows(now):
        bounds = {name: getattr(trainer, name) for name in ("min_nodes", "max_nodes", "sizes")}
        return f"{why}; it may have {size_range(bounds)}"
    pays = problem.worth(trainer, count) >= problem.worth(trainer, now)
    return why if pays else f"{why}; its nodes bring more elsewhere"


def _change(now: int, count: int) -> str:
    if now == count:
        return "unchanged"
    if now == 0:
        return "started"
    if count == 0:
        return "stopped"
    return "grew" if count > now else "shrank"
