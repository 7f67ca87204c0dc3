"""Sentences on why a trainer has so many nodes, or waits, for ``bftrainer explain`` and the page.

They are made from a published status alone; ``status.terms_of`` makes the plan's terms in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from itertools import chain
from typing import Any

from bftrainer_slurm.model import ThroughputCurve
from bftrainer_slurm.planner.limit import Limit
from bftrainer_slurm.planner.objectives.goodput import batch_efficiency
from bftrainer_slurm.words import ARE, counted, duration, either, number

_OVER = {
    "given up": "It was given up",
    "finished": "It has finished",
    "finishing": "It has finished, and its last elements are ending",
    "cancelled": "It was cancelled",
    "withheld": "An operator holds it",
}
_OLD_S = 30.0  # a controller publishes every two seconds, but not during a turn


def down(status: Mapping[str, Any], age_s: float) -> str | None:
    """Return why the controller makes no plans now, None if it makes them."""
    if status["controller"].get("error") == "stopped":
        return "the controller is down: it was stopped"
    word = f"the controller is down, or its turn takes long; its last status is {age_s:.0f} s old"
    return word if age_s >= _OLD_S else None


def troubles(status: Mapping[str, Any]) -> list[str]:
    """Return the problems that the controller published last."""
    about = status["controller"]
    own = (about.get(part) for part in ("error", "history"))
    lists = (about.get(part) or () for part in ("slurm", "refusals"))
    return [str(one) for one in (*own, *chain(*lists)) if one]


def reasons(one: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    """Return why a trainer (``one``) has so many nodes, in sentences."""
    if document["down"]:
        return [f"No plans are made now: {document['down']}. It keeps the nodes that it has."]
    if one["state"] in _OVER:
        why = f": {one['why']}" if one.get("why") else ""
        return [f"{_OVER[one['state']]}{why}."]
    found = [f"It cannot have more now: {one['why']}."] if one.get("why") else []
    if said := deadline(one):
        found.append(f"Its deadline: {said}.")
    if one.get("left_out"):
        found.append(f"It does without {one['left_out']}.")
    if one["starting"]:
        count = len(one["starting"])
        found.append(f"{nodes(count)} more {ARE[count != 1]} starting.")
    if (stopped := document.get("stopped_pass")) and (one["starting"] or not one["nodes"]):
        found.append(
            f"Slurm's last backfill pass stopped after {stopped['tried']:,} tries with "
            f"{counted(stopped['left'], 'job')} left. Trainers' elements come last, so they start "
            "only where the main scheduler comes to them."
        )
    plan = one.get("plan")
    if plan:
        if one.get("sizes") or one.get("step", 1) > 1:
            found.append(f"It trains on {size_range(one)} only, as its user asked.")
        found += [
            _limit(plan),
            *_goodput(one, document),
            *_loss(one),
            *_usable(plan, document),
            pool_sentence(document),
            *_barred(one, document),
        ]
        if len(one["nodes"]) + len(one["starting"]) != plan["nodes"]:
            found.append(
                f"The plan gives it {size_of(plan, plan['nodes'])}; it is on its way there."
            )
    elif one.get("hidden"):
        found += [f"Only {one['user']} sees what the plan says about it.", pool_sentence(document)]
    elif not found:
        found.append(
            "It is in no plan now: it is new, it waits after a failure, or it has fewer elements "
            "left than it needs nodes."
        )
    return found


def deadline(one: Mapping[str, Any]) -> str | None:
    """Say what a trainer's deadline needs, and whether it is on time; None: it has none."""
    about = one.get("deadline")
    if not about:
        return None
    by = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["by_s"]))
    samples, state = f"{one['wanted_samples']:,.0f} samples", about["state"]
    if state == "done":
        return f"{samples} by {by}: all are trained"
    if state == "passed":
        return f"{samples} by {by}: that is over, and it counts as if it had no deadline"
    refused = _no_share(one, about)
    if state == "not known":
        meanwhile = refused or (
            "; a new trainer gets its least number of nodes first, and one that reports no samples "
            "has no deadline"
        )
        return f"{samples} by {by}: its samples/s are not known yet{meanwhile}"
    rate = one.get("samples_per_s")
    has = f"has {number(rate)}" if rate else "makes none now"
    needs = f"needs {number(about['needs'])} samples/s until {by} and {has}"
    if state == "on time":
        return f"{needs}: on time{refused}"
    late = f"late by {duration(about['late_s'])}" if about["late_s"] else "late"
    if state == "late":
        return f"{needs}: {late}{refused}"
    return f"{needs}: {late}; no number of its nodes is enough, so it counts as without a deadline"


def _no_share(one: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """Say that a deadline does not fit into the site's share for deadlines; empty if it does."""
    if (left := about.get("nodes_left")) is None:
        return ""
    left = amount(one, left)
    return (
        f"; that takes {size_of(one, about['nodes'])}, and deadlines may have "
        f"{f'only {left}' if left else 'no'} more (deadline_share), so it counts as without one"
    )


def noise_scale(one: Mapping[str, Any]) -> str | None:
    """Say a trainer's gradient noise scale, and what a step has of each node; None: not known."""
    if not (noise := one.get("noise")):
        return None
    how = "given" if noise["given"] else "measured"
    batch = f"{number(noise['node_batch'])} samples of each node in a step"
    if not noise["node_batch"]:
        batch = "as many samples in a step on any number of nodes"
    return f"{number(noise['samples'])} samples ({how}), {batch}"


def _goodput(one: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    """Say both factors of a trainer's goodput on its planned nodes, if plans count with it."""
    count, curve = one["plan"]["nodes"], one.get("curve") or {"unit": None}
    objective = (document.get("controller") or {}).get("objective") or ""
    if objective.partition("+")[0] != "goodput" or not count:
        return []
    if curve["unit"] != "samples" or not (said := noise_scale(one)):
        return [
            "A sample counts the same on any number of its nodes, as its gradient noise scale, or "
            "how many samples a step has, is not known."
        ]
    noise, points = one["noise"], curve["points"]
    sizes, rates = ([point[key] for point in points] for key in ("nodes", "rate"))
    rate = ThroughputCurve((0, *sizes), (0.0, *rates)).at(count)
    batches = noise["samples"] / noise["node_batch"] if noise["node_batch"] else math.inf
    counts = batch_efficiency(batches, count)
    return [
        f"On {nodes(count)} it makes {number(rate)} samples/s, and a sample counts {counts:.2f} of "
        f"one on a single node, which is a goodput of {number(rate * counts)}. Its noise scale: "
        f"{said}."
    ]


def _loss(one: Mapping[str, Any]) -> list[str]:
    """Say how much training a change of size would lose; the plan counts this as a cost."""
    loss = one.get("loss") or {"seconds": 0.0}
    if loss["seconds"] < 1.0:
        return []
    since, why = "checkpoint", ""
    if loss["from_start"]:
        since, why = "start", "It begins at step 0 again after each change of nodes. "
    return [
        f"{why}A change now would lose the {duration(loss['seconds'])} that it has trained since "
        f"its last {since}, so the plan keeps its size unless another size gains more than that."
    ]


def _usable(plan: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    """Say if a trainer uses parts of nodes, and if it cannot use all nodes of the pool."""
    if plan.get("gpus"):
        return [
            f"It takes {size_of(plan, 1)} of each of its nodes. Without other trainers it could "
            f"have as many on {plan['usable']} of the pool's {nodes(plan['pool'])}."
        ]
    if plan["usable"] == plan["pool"]:
        return []
    others = "are another kind of hardware, or lack what it asks for"
    if document["pool"]["gpus"] is not None:
        others = "have ordinary jobs, are another kind of hardware, or lack what it asks for"
    return [
        f"It may use {plan['usable']} of the pool's {nodes(plan['pool'])}: the others {others}."
    ]


def pool_sentence(document: Mapping[str, Any]) -> str:
    """Say where trainers run, start and are to run, and which nodes they may not use now."""
    pool = document["pool"]
    left = [f"{count} ({why})" for why, count in document.get("left_alone", {}).items() if count]
    more = f" Idle, but left alone: {', '.join(left)}." if left else ""
    gpus = pool["gpus"]
    which, have = "without ordinary jobs", ""
    if gpus is not None:
        which = "that ordinary jobs do not fill"
        have = f", with {gpus['used']:,} of the {counted(gpus['left'], 'GPU')} left there"
    starts = ""
    if pool["starting"]:
        starts = f", and start on {pool['starting']} more{_in_gpus(gpus, 'starting')}"
    on_the_way = any(
        one["planned"] not in (None, one["used"] + one["starting"]) for one in (pool, gpus) if one
    )
    plan = ""
    if on_the_way:
        plan = f"; the plan gives them {pool['planned']}{_in_gpus(gpus, 'planned')}"
    return (
        f"Trainers run on {pool['used']} of the {nodes(pool['nodes'])} {which}{have}{starts}{plan}."
        f"{more}"
    )


def _in_gpus(gpus: Mapping[str, int] | None, key: str) -> str:
    return "" if gpus is None else f" ({counted(gpus[key], 'GPU')})"


def _barred(one: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    """Say which idle nodes no trainer, or not this one, may use now, and for how long."""
    found = []
    for whom, bars in (("No trainer", document.get("barred")), ("It", one.get("barred"))):
        for bar in bars or ():
            named, more = ", ".join(bar["some"]), bar["nodes"] - len(bar["some"])
            named += f" and {more} more" if more else ""
            how_long = "" if bar["for_s"] is None else f" for up to {duration(bar['for_s'])}"
            can = "starts" if whom == "No trainer" else "does not start"
            found.append(f"{whom} {can} on {named}{how_long}: {bar['why']}.")
    return found


def _limit(plan: Mapping[str, Any]) -> str:
    """Say what keeps a trainer from having more nodes."""
    usable = amount(plan, plan["usable"])
    match Limit(plan["limit"]):
        case Limit.MOST:
            return f"It has {size_of(plan, plan['most'])}, as many as it may have now."
        case Limit.POOL if plan["nodes"] and plan["usable"] > plan["nodes"]:
            larger = min(one["nodes"] for one in plan["sizes"] if one["nodes"] > plan["nodes"])
            return f"Next would be {size_of(plan, larger)}, and it can use only {usable} now."
        case Limit.POOL if plan["nodes"]:
            return f"It has all {size_of(plan, plan['usable'])} that it can use now."
        case Limit.POOL:
            least = size_of(plan, plan["least"])
            return f"It needs at least {least}, and can use only {usable} now."
        case Limit.NO_GAIN:
            better, has = size_of(plan, plan["better"]), amount(plan, plan["nodes"])
            return f"By its throughput curve it trains no faster on {better} than on {has}."
        case Limit.COST:
            return _cost(plan)
        case Limit.OTHERS:
            return _others(plan)
        case Limit.UNPROVEN:
            return (
                f"{size_of(plan, plan['better'])} would be better ({number(plan['gain'])} more), "
                "but the planner ran out of time, or had no solver. 'bftrainer status' shows the "
                "problem."
            )


def _cost(plan: Mapping[str, Any]) -> str:
    size = next(one for one in plan["sizes"] if one["nodes"] == plan["better"])
    return (
        f"A change to {size_of(plan, plan['better'])} costs {number(size['rescale'])} in "
        f"rescaling, more than they bring in the {plan['forward_s']:.0f} s that the plan looks "
        f"ahead ({number(plan['gain'])} in all)."
    )


def _others(plan: Mapping[str, Any]) -> str:
    missing = amount(plan, plan["better"] - plan["nodes"] - plan["free"])
    gain = (
        f"With {size_of(plan, plan['better'])} it would gain {number(plan['gain'])}{_speedup(plan)}"
    )
    others = f"other trainers have {missing} of them"
    if plan["loss"] is None:
        price = number(plan["price"])
        of_node = f"{size_of(plan, 1)} of a node {'is' if amount(plan, 1) == 1 else 'are'}"
        worth = of_node if plan.get("gpus") else "a node is"
        return (
            f"{gain}, but {others}, and none of them alone has so many. To them {worth} worth "
            f"about {price}."
        )
    return (
        f"{gain}, but {others}. The trainer that would lose least by giving up so many would lose "
        f"{number(plan['loss'])}."
    )


def _speedup(plan: Mapping[str, Any]) -> str:
    """Say how much faster a trainer would be with its better size."""
    rates = {size["nodes"]: size["rate"] for size in plan["sizes"]}
    now = rates.get(plan["nodes"], 0.0)
    if not now:
        return ""
    return f" ({rates[plan['better']] / now - 1:+.0%} a second)"


def size_range(one: Mapping[str, Any]) -> str:
    """Return the sizes that a trainer allows: ``1 to 8 nodes``, ``2, 4 or 8 nodes``."""
    if sizes := one.get("sizes"):
        return f"{either(sizes)} node{'' if list(sizes) == [1] else 's'}"
    steps = f" in steps of {one['step']}" if one.get("step", 1) > 1 else ""
    return f"{one['min_nodes']} to {one['max_nodes']} nodes{steps}"


def size_of(plan: Mapping[str, Any], count: int) -> str:
    """Return ``count`` nodes of a plan in words: as GPUs if it plans parts of nodes."""
    return counted(amount(plan, count), unit_of(plan))


def amount(plan: Mapping[str, Any], count: int) -> int:
    """Return ``count`` nodes of a plan as a number of nodes, or of GPUs, as ``unit_of`` says."""
    return count * (plan.get("gpus") or 1)


def unit_of(one: Mapping[str, Any]) -> str:
    """Return the unit of a trainer's size, or of its plan: node or GPU."""
    return "GPU" if one.get("gpus") else "node"


def in_parts(one: Mapping[str, Any]) -> bool:
    """Whether a trainer has some GPUs of its nodes, not all of each."""
    return bool(one.get("gpus"))


def standing(one: Mapping[str, Any]) -> str:
    """Return a trainer's state, what it has and what it wants, in a line."""
    return f"{one['state']}, {allocation(one)}, wants {size_range(one)}"


def allocation(one: Mapping[str, Any]) -> str:
    """Return the size of a trainer: ``3 nodes``, ``6 GPUs on 3 nodes``."""
    count = len(one["nodes"])
    part = f"{size_of(one, count)} on " if in_parts(one) else ""
    return f"{part}{nodes(count)}"


def nodes(count: int) -> str:
    """Return a number of nodes in words."""
    return counted(count, "node")
