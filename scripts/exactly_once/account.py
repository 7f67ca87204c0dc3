"""From records: which samples a training trained, how often, and with what learning rate. Pure.

A training that is restarted has several lives. Each goes on from a checkpoint, and what the ones
before trained since then is not in the model any more: it is trained again, or lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from scripts.benchkit.steps import Step


@dataclass(frozen=True, slots=True)
class Trained:
    """One step of all ranks, as it is in the model."""

    number: int
    world: int
    rate: float
    numbers: tuple[int, ...]  # of the samples


@dataclass(frozen=True, slots=True)
class Account:
    """What became of a training's samples."""

    asked: int  # samples, each as often as there are epochs
    trained: int  # in all, also what a restart has thrown away
    lost: int  # of those asked for: not in the model
    twice: int  # in the model more often than asked for
    again: int  # trained, thrown away by a restart, and trained again
    planned: int  # of ``again``: at a change that the plan made
    rate_off: float  # largest distance from the unchanged run's rate, of the highest rate
    loss: float | None  # at the end; None: the training has not ended
    steps: int  # of the optimizer, in the model


def in_the_model(steps: Iterable[Step]) -> tuple[list[Trained], dict[float, int]]:
    """Return the steps that are in the model, and how many samples restarts have thrown away.

    The latter have as key when the first step after the restart was made (``time.monotonic()``).

    Args:
        steps: those of each process, see ``programs.recording``.
    """
    lives: dict[str, dict[int, list[Step]]] = defaultdict(lambda: defaultdict(list))
    for one in steps:
        lives[one.more["group"]][one.number].append(one)
    model: dict[int, list[Step]] = {}
    thrown_away: dict[float, int] = {}
    for life in sorted(lives.values(), key=_first_s):
        again = [model.pop(number) for number in [one for one in model if one >= min(life)]]
        if again:
            thrown_away[_first_s(life)] = sum(len(_numbers(ranks)) for ranks in again)
        model |= life
    trained = [
        Trained(number, ranks[0].world, float(ranks[0].more["rate"]), _numbers(ranks))
        for number, ranks in sorted(model.items())
    ]
    return trained, thrown_away


def _first_s(life: Mapping[int, Iterable[Step]]) -> float:
    return min(one.time_s for ranks in life.values() for one in ranks)


def _numbers(ranks: Iterable[Step]) -> tuple[int, ...]:
    return tuple(number for one in ranks for number in one.more["numbers"])


def account(
    steps: Sequence[Trained],
    thrown_away: Mapping[float, int],
    samples: int,
    epochs: int,
    loss: float | None,
    course: Sequence[Trained] = (),
    asked_steps: int = 0,
    planned: Iterable[tuple[float, float]] = (),
) -> Account:
    """Return what became of the samples of a training of ``epochs`` over ``samples``.

    Args:
        steps: those in the model.
        thrown_away: samples that restarts have thrown away, by when training continued.
        samples: of an epoch.
        epochs: that were asked for.
        loss: at the end.
        course: the steps of a run without changes; none: its rate falls in a straight line.
        asked_steps: of the optimizer, in place of epochs; 0: epochs.
        planned: when a change came that the plan made, and when the next change of any kind.
    """
    often = Counter(number for step in steps for number in step.numbers)
    counts = [often[number] for number in range(samples)]
    rates, spans = _rates(steps, samples * epochs), list(planned)
    if asked_steps:
        rates = [(number / asked_steps, rate) for number, (_, rate) in enumerate(rates)]
    should = _rates(course, sum(len(step.numbers) for step in course)) or [(0.0, 1.0)]
    return Account(
        asked=samples * epochs,
        trained=sum(counts) + sum(thrown_away.values()),
        lost=sum(max(0, epochs - count) for count in counts),
        twice=sum(max(0, count - epochs) for count in counts),
        again=sum(thrown_away.values()),
        planned=sum(
            count
            for on_s, count in thrown_away.items()
            if any(begin_s <= on_s < end_s for begin_s, end_s in spans)
        ),
        rate_off=_off(rates, [*should, (1.0, 0.0)]),
        loss=loss,
        steps=len(steps),
    )


def _rates(steps: Sequence[Trained], samples: int) -> list[tuple[float, float]]:
    """Return each step's rate as a share of the highest, by the share of samples before it."""
    highest = max((step.rate for step in steps), default=0.0) or 1.0
    before = [0, *accumulate(len(step.numbers) for step in steps)][: len(steps)]
    pairs = zip(before, steps, strict=True)
    return [(done / samples, step.rate / highest) for done, step in pairs]


def _off(found: Sequence[tuple[float, float]], should: Sequence[tuple[float, float]]) -> float:
    """Return the largest distance of a rate from the right one at its place."""
    if not found:
        return 0.0
    places, rates = np.array(found).T
    at, right = np.array(should).T
    return float(np.max(np.abs(rates - np.interp(places, at, right))))
