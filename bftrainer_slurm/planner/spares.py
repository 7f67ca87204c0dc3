"""Spares, trainers without nodes, in the bound and in the solver's model.

What one more of those who stand in for others is worth (``Problem.spares``) is a sum over no
trainers. So the bound pays each of them the same rebate, and the model counts what they bring
beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bftrainer_slurm.planner.bound import Bound
from bftrainer_slurm.planner.options import Bidder


@dataclass(frozen=True, slots=True)
class Spares:
    """What the first, the second, ... spare is worth; each is paid a rebate."""

    worths: tuple[float, ...] = ()
    rebate: float = 0.0

    @property
    def excess(self) -> float:
        """The most that spares can be worth beyond all their rebates."""
        return sum(max(0.0, worth - self.rebate) for worth in self.worths)


NO_SPARES = Spares()


@dataclass(frozen=True, slots=True)
class Rebated:
    """Bidders whose worth of no node has the rebate in it, and the bound that this proves."""

    bidders: list[Bidder]
    bound: Bound
    spares: Spares


def best_rebate(
    bidders: Sequence[Bidder], worths: tuple[float, ...], bound_of: Callable[[list[Bidder]], Bound]
) -> Rebated:
    """Return, of no rebate and one as high as each spare's worth, that with the best bound.

    Any rebate proves a bound; ``bound_of`` finds it.
    """
    offers = (_with_rebate(bidders, Spares(worths, one), bound_of) for one in {0.0, *worths})
    return min(offers, key=lambda one: (one.bound.value, one.spares.rebate))


def _with_rebate(
    bidders: Sequence[Bidder], spares: Spares, bound_of: Callable[[list[Bidder]], Bound]
) -> Rebated:
    paid = [_paid(bidder, spares.rebate) for bidder in bidders] if spares.rebate else [*bidders]
    bound = bound_of(paid)
    return Rebated(paid, replace(bound, value=bound.value + spares.excess), spares)


def _paid(bidder: Bidder, rebate: float) -> Bidder:
    if not bidder.stands_in:
        return bidder
    none, *others = bidder.options
    return replace(bidder, options=(replace(none, start=none.start + rebate), *others))
