"""``bftrainer explain``: why a trainer has so many nodes, or waits, by the plan's own terms."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from bftrainer_slurm.cli.common import (
    fail,
    fail_where_unreadable,
    json_option,
    keeper_option,
    personal_state,
    print_json,
    safe_lines,
    shown,
    state_option,
)
from bftrainer_slurm.cli.show import the_one
from bftrainer_slurm.cli.status import current_status
from bftrainer_slurm.cli.terminal import wrapped
from bftrainer_slurm.planner.limit import Limit

SCHEMA = 1
_PLAN_LIMIT_S = 60.0
_OVER = {
    "given up": "It was given up",
    "finished": "It has finished",
    "finishing": "It has finished, and its last elements are ending",
    "cancelled": "It was cancelled",
    "withheld": "An operator holds it",
}


@click.command()
@click.argument("trainer")
@click.option(
    "--from-history",
    "back",
    type=click.IntRange(1, 100),
    metavar="N",
    help="What the controller planned N plans ago, planned again; for who can read its --state.",
)
@state_option
@keeper_option
@json_option
def explain(
    trainer: str, back: int | None, state: Path | None, address: str | None, as_json: bool
) -> None:
    """Say why TRAINER has as many nodes as it has, or why it waits.

    The words and numbers are those of the controller's last plan: what the trainer asked for, which
    nodes there are, what more nodes would bring it, what a change of size costs, and what others
    would lose. TRAINER is a job id, or a name that only one trainer has. Of others' trainers the
    plan's terms are not shown.

    \b
    Examples:
      bftrainer explain 4711
      bftrainer explain resnet --json
      bftrainer explain 4711 --from-history 5 --state /var/lib/bftrainer
    """
    if back is not None:
        one, document = _of_the_past(trainer, back, state or personal_state())
        if as_json:
            print_json(as_document(one, document))
        else:
            click.echo(safe_lines("\n".join(_past_lines(one, document, back))))
        return
    with fail_where_unreadable():
        document = current_status(state, address)
        one = the_one(document["trainers"], trainer)
        if as_json:
            print_json(as_document(one, document))
        else:
            click.echo(safe_lines("\n".join(lines(one, document, time.time()))))


def as_document(one: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of the reasons as JSON has it; the schema is in docs/explain.md."""
    kept = ("array", "name", "user", "state", "why", "min_nodes", "max_nodes", "nodes", "starting")
    pool = document["pool"]
    return {
        "schema": SCHEMA,
        "down": document["down"],
        **{key: one.get(key) for key in kept},
        "pool": pool and {**pool, "left_alone": document.get("left_alone", {})},
        "plan": one.get("plan"),
        "reasons": reasons(one, document),
    }


def lines(one: Mapping[str, Any], document: Mapping[str, Any], now_s: float) -> Iterator[str]:
    """Return what a person reads."""
    yield (
        f"trainer {one['array']} {shown(one['name'])} of {shown(one['user'])}: {one['state']}, "
        f"{_nodes(len(one['nodes']))}, wants {one['min_nodes']} to {one['max_nodes']}"
    )
    ago_s = max(0.0, now_s - one["plan"]["time_s"]) if one.get("plan") else 0.0
    yield from _body(one, document, f"planned {ago_s:.0f} s ago")


def _past_lines(one: Mapping[str, Any], document: Mapping[str, Any], back: int) -> Iterator[str]:
    """Return what a person reads of a plan that is over."""
    ago = f"{back} plan{'' if back == 1 else 's'} ago"
    yield f"trainer {shown(one['array'])}, {ago}: {_nodes(one['plan']['nodes'])}"
    yield from _body(one, document, "planned again now")


def _body(one: Mapping[str, Any], document: Mapping[str, Any], planned: str) -> Iterator[str]:
    """Return the reasons, and the plan's terms as a table."""
    for reason in reasons(one, document):
        yield from wrapped(shown(reason, 500), 2)
    plan = one.get("plan")
    if not plan:
        return
    yield ""
    yield f"{'nodes':>7}{'brings':>12}{'rescaling':>12}{'worth':>12}"
    for size in plan["sizes"]:
        mark = "  <- the plan" if size["nodes"] == plan["nodes"] else ""
        brings = plan["forward_s"] * size["rate"]
        cells = (brings, -size["rescale"] or 0.0, size["worth"])
        yield f"{size['nodes']:>7}" + "".join(f"{_number(cell):>12}" for cell in cells) + mark
    remark = (
        f"in units of the objective times seconds, over the {plan['forward_s']:g} s that a plan "
        f"looks ahead; {planned}, from the {_nodes(plan['had'])} that it had"
    )
    yield from wrapped(remark, 2)


def _of_the_past(trainer: str, back: int, state: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a trainer and a cluster as the controller saw them, by a plan that is made again."""
    from bftrainer_slurm.cli.plan import given_problem
    from bftrainer_slurm.controller.publish.explanation import terms_of
    from bftrainer_slurm.planner.solver import Planner

    problem = given_problem(None, back, state)
    with Planner(time_limit_s=_PLAN_LIMIT_S) as planner:
        planner.warm_up()
        plan = planner.plan(problem)
    terms = terms_of(problem, plan, time.time())
    if trainer not in terms:
        fail(f"no trainer '{shown(trainer)}' in that plan; it has: {', '.join(terms) or 'none'}")
    own, used = terms[trainer], frozenset[str]().union(*plan.assignment.values())
    one = {
        "array": int(trainer) if trainer.isdigit() else trainer,
        "state": "planned",
        "nodes": sorted(plan.assignment[trainer]),
        "starting": [],
        "min_nodes": own["least"],
        "max_nodes": own["most"],
        "plan": own,
    }
    free = sorted(problem.pool - used)
    pool = {"nodes": len(problem.pool), "used": len(used), "free": free}
    return one, {"down": None, "pool": pool}


def reasons(one: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    """Return why it has so many nodes, in sentences."""
    if document["down"]:
        return [f"Nobody plans now: {document['down']}. It keeps the nodes that it has."]
    if one["state"] in _OVER:
        why = f": {one['why']}" if one.get("why") else ""
        return [f"{_OVER[one['state']]}{why}."]
    found = [f"It cannot have more now: {one['why']}."] if one.get("why") else []
    if one["starting"]:
        found.append(f"{_nodes(len(one['starting']))} more {_is(one['starting'])} starting.")
    plan = one.get("plan")
    if plan:
        found += [_LIMITS[Limit(plan["limit"])](plan), *_room(plan), _pool(document)]
        if len(one["nodes"]) + len(one["starting"]) != plan["nodes"]:
            found.append(f"The plan gives it {_nodes(plan['nodes'])}; it is on its way there.")
    elif one.get("hidden"):
        found += [f"What the plan says of it is for {one['user']} to see.", _pool(document)]
    elif not found:
        found.append(
            "It is in no plan now: it has just come, rests after a failure, or has fewer elements "
            "left than it needs nodes."
        )
    return found


def _room(plan: Mapping[str, Any]) -> list[str]:
    """Say where it may have fewer nodes than are in the pool."""
    if plan["usable"] == plan["pool"]:
        return []
    return [
        f"Of the pool's {_nodes(plan['pool'])} it may use {plan['usable']}: the others are of "
        "another kind of hardware, or not what it asks for."
    ]


def _pool(document: Mapping[str, Any]) -> str:
    """Say what there is, and what of it is not for trainers now."""
    pool = document["pool"]
    free = pool["nodes"] - pool["used"]
    left = [f"{count} ({why})" for why, count in document.get("left_alone", {}).items() if count]
    more = f"; idle nodes that trainers leave alone: {', '.join(left)}" if left else ""
    return f"Trainers use {pool['used']} of {_nodes(pool['nodes'])} in holes{_rest(free)}{more}."


def _rest(free: int) -> str:
    return f", {free} {_is(range(free))} free" if free else ""


def _most(plan: Mapping[str, Any]) -> str:
    return f"It has as many nodes as it may have now, {plan['most']}."


def _too_few(plan: Mapping[str, Any]) -> str:
    if plan["nodes"]:
        return f"It has all {_nodes(plan['usable'])} that there are for it."
    return f"It needs {_nodes(plan['least'])} at least, and there are {plan['usable']} for it."


def _no_gain(plan: Mapping[str, Any]) -> str:
    return (
        f"On {_nodes(plan['better'])} it trains no faster than on {plan['nodes']}, as far as its "
        "throughput curve says."
    )


def _cost(plan: Mapping[str, Any]) -> str:
    size = next(one for one in plan["sizes"] if one["nodes"] == plan["better"])
    return (
        f"A change to {_nodes(plan['better'])} costs {_number(size['rescale'])} in rescaling, more "
        f"than they bring in the {plan['forward_s']:g} s that the plan looks ahead "
        f"({_number(plan['gain'])} in all)."
    )


def _others(plan: Mapping[str, Any]) -> str:
    missing = plan["better"] - plan["nodes"] - plan["free"]
    gain = f"With {_nodes(plan['better'])} it would gain {_number(plan['gain'])}{_share(plan)}"
    others = f"other trainers have {missing} of these"
    if plan["loss"] is None:
        price = _number(plan["price"])
        return f"{gain}, but {others}, none of them so many. A node is worth about {price} to them."
    return (
        f"{gain}, but {others}. Whom it would cost least to give up so many would lose "
        f"{_number(plan['loss'])}."
    )


def _unproven(plan: Mapping[str, Any]) -> str:
    return (
        f"{_nodes(plan['better'])} would be better ({_number(plan['gain'])} more): the planner ran "
        "out of time, or had no solver. 'bftrainer status' shows its trouble."
    )


_LIMITS: Mapping[Limit, Callable[[Mapping[str, Any]], str]] = {
    Limit.MOST: _most,
    Limit.POOL: _too_few,
    Limit.NO_GAIN: _no_gain,
    Limit.COST: _cost,
    Limit.OTHERS: _others,
    Limit.UNPROVEN: _unproven,
}


def _share(plan: Mapping[str, Any]) -> str:
    """Say by how much faster it would train."""
    rates = {size["nodes"]: size["rate"] for size in plan["sizes"]}
    now = rates.get(plan["nodes"], 0.0)
    if not now:
        return ""
    return f" ({rates[plan['better']] / now - 1:+.0%} a second)"


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _is(many: Any) -> str:
    return "is" if len(many) == 1 else "are"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
