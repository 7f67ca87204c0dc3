"""Plans without a solver where nodes have classes: the fallback, no worse than changing nothing."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer_slurm.planner.classes import Share
from bftrainer_slurm.planner.options import Bidder, Option, bidders_of, worth_of
from bftrainer_slurm.planner.problem import Problem, value


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is best for one contender, and what it is worth."""

    worth: float
    share: Share


def greedy_shares(problem: Problem) -> list[Share]:
    """Start from what is; then each takes what is best for it, of its own nodes and free ones.

    Who gains most by a node comes first.
    """
    bidders = {member: bidder for bidder in bidders_of(problem) for member in bidder.members}
    now = [problem.now(contender) for contender in problem.contenders]
    none = (0,) * len(problem.classes)
    shares = [
        share if problem.allows(contender, share) else _best(bidders[index], share, none).share
        for index, (contender, share) in enumerate(zip(problem.contenders, now, strict=True))
    ]
    standing = list(shares)
    free = _minus(problem.sizes(), tuple(map(sum, zip(*shares, strict=True))) or none)
    gains = []
    for index, contender in enumerate(problem.contenders):
        best = _best(bidders[index], now[index], free)
        more = max(1, sum(best.share) - sum(shares[index]))
        gains.append(((best.worth - problem.worth(contender, shares[index])) / more, index))
    for gain, index in sorted(gains, key=lambda one: -one[0]):
        if gain <= 0:
            break
        own = _plus(free, shares[index])
        best = _best(bidders[index], now[index], _minus(own, now[index]))
        if best.worth > problem.worth(problem.contenders[index], shares[index]):
            shares[index], free = best.share, _minus(own, best.share)
    if problem.spares and value(problem, shares) < value(problem, standing):
        return standing  # its starts cost more spares than they bring
    return shares


def _best(bidder: Bidder, now: Share, free: Share) -> _Answer:
    """The best it can have without anyone else's nodes; to have none is always possible."""
    answers = (_filled(option, bidder.charges, _plus(now, free)) for option in bidder.options)
    return max((answer for answer in answers if answer), key=lambda answer: answer.worth)


def _filled(option: Option, charges: tuple[float, ...], there: Share) -> _Answer | None:
    """The option at its best with these nodes, those first that lose least."""
    share = list(option.low)
    if any(low > most for low, most in zip(share, there, strict=True)):
        return None
    for charge, place in sorted((charge, place) for place, charge in enumerate(charges)):
        wanted = option.most if option.slope > charge else option.least
        room = min(option.high[place], there[place]) - share[place]
        share[place] += max(0, min(room, wanted - sum(share)))
    if sum(share) < option.least:
        return None
    charged = sum(count * charge for count, charge in zip(share, charges, strict=True))
    return _Answer(worth_of(option, sum(share)) - charged, tuple(share))


def _plus(one: Share, other: Share) -> Share:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _minus(one: Share, other: Share) -> Share:
    return tuple(a - b for a, b in zip(one, other, strict=True))
