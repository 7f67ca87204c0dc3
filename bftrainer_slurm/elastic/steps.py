"""Counts a process's steps: those that its script reports, or those of its optimizers.

And the samples that its DataLoaders give. Only ``count`` needs torch.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Mapping
from math import nan
from typing import Any

from bftrainer_slurm.elastic import beginning, listeners
from bftrainer_slurm.elastic.around import around
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.memory import VARIABLE, Counts, Memory, of_agent


class Steps:
    """The steps of this process: as the script reports them, else its optimizers.

    They are counted in ``memory``; None: nobody wants to know. Between two of them the script is
    told of changes.
    """

    def __init__(self, memory: Memory | None) -> None:
        self._memory = memory
        self._before = Counts() if memory is None else Counts.from_buffer_copy(memory.counts)
        self._begun = self._by_script = False
        self._in_group = False  # with all other processes
        self._seen = False  # an optimizer's first step
        self._numbered = False  # the script has told a step's number
        self._stepped: set[int] = set()
        self._given: int | None = None  # samples that this rank got since the last step
        self._backward = False  # a backward pass was made since the last step

    @property
    def memory(self) -> Memory | None:
        """Where they are counted; None: not in this process."""
        return self._memory

    def by_script(self, samples: float | None, number: int | None = None) -> None:
        """Count a step that the script reports; from the first report on only these count.

        ``samples`` are those of all ranks; None: not known. A step whose ``number`` is not above
        all numbers before is repeated: it was lost, and is counted as such only.
        """
        if self._memory is None:
            return
        if not self._by_script:
            self._by_script, self._begun = True, False
            ctypes.pointer(self._memory.counts)[0] = self._before  # without the optimizers'
        self._count(self._memory, samples, number)

    def by_optimizer(self, optimizer: object) -> None:
        """Count a step at an optimizer's first step, and whenever one that has stepped steps again.

        So two optimizers that take turns (a GAN's) count once a round, and a single one counts
        every time. The samples are those that DataLoaders gave this rank, times the ranks. Of what
        they gave before the first backward pass only the last batch counts: others were skipped.
        """
        if self._memory is None:
            return
        if not self._in_group:
            self._in_group = _world() >= int(os.environ.get("WORLD_SIZE", "1"))
            self._memory.present.alone = not self._in_group
        makes_state, self._backward = not self._backward and has_no_rate(optimizer), False
        if self._by_script or makes_state:
            return
        if not self._seen:
            self._seen = True
            beginning.look(self._memory, optimizer, self._before.steps > 0, _world())
        if not self._stepped or id(optimizer) in self._stepped:
            self._stepped.clear()
            self._count(self._memory, None if self._given is None else self._given * _world())
            self._given = self._given and 0
        self._stepped.add(id(optimizer))

    def wrote_file(self) -> None:
        """Note that the script has written a file by torch."""
        if self._memory is not None:
            self._memory.past.kept_s = time.monotonic()

    def given(self, samples: int) -> None:
        """Note how many samples of a batch were given to be trained."""
        trains = self._seen or self._backward
        self._given = samples + (self._given or 0 if trains else 0)

    def passes_back(self) -> None:
        """Note a backward pass."""
        self._backward = True

    def _count(self, memory: Memory, samples: float | None, number: int | None = None) -> None:
        counts, past = memory.counts, memory.past
        known = nan if samples is None else samples
        if memory.untold:
            listeners.hear(memory)
        if number is not None:
            if not self._numbered and number > 1:
                memory.goes_on()
            self._numbered = True
            if number <= past.highest:
                past.lost += 1
                past.lost_samples += known
                past.again_s = past.again_s or time.monotonic()
                return
            past.highest = number
        counts.steps += 1
        counts.samples += known
        counts.last_s = time.monotonic()
        if not self._begun:
            self._begun = True
            counts.first_s = counts.last_s


def has_no_rate(optimizer: object) -> bool:
    """Whether it steps with a rate of 0: at a warm-up's first step, or to make its state.

    torch.distributed.checkpoint has it make its state without a backward pass, and again and again
    if there is no state to make, as in SGD without momentum.
    """
    groups = getattr(optimizer, "param_groups", ())
    return bool(groups) and all(
        isinstance(group["lr"], float) and group["lr"] == 0.0 for group in groups
    )


def _world() -> int:
    """Return how many ranks train; only called if torch is installed."""
    import torch.distributed as dist

    return dist.get_world_size() if dist.is_initialized() else 1


_steps: Steps | None = None


def step(samples: float | None = None, number: int | None = None) -> None:
    """Report that a training step is done; call it on all ranks.

    ``samples`` is how many samples all ranks together have trained in it (rank 0's value counts);
    None if that is not known. ``number`` is the step's number in the training, from 1 on: a step
    that is trained again after a restart is not counted again. It does nothing outside an element,
    and never raises.
    """
    of_this_process().by_script(samples, number)


def of_this_process() -> Steps:
    """Return this process's steps; only the first process of a node counts them."""
    global _steps
    if _steps is None:
        _steps = Steps(_found_memory())
    return _steps


def _found_memory() -> Memory | None:
    if "BFTRAINER_ELEMENT" not in os.environ or os.environ.get("LOCAL_RANK", "0") != "0":
        return None
    if VARIABLE not in os.environ and os.environ.get("RANK", "0") == "0":
        say("progress is not reported: no torchrun of this trainer's group has started the script")
    return of_agent(os.environ)


def count() -> None:
    """Count from now on what torch does; in a process that is forked from this one, too."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from bftrainer_slurm.elastic.torch_private import watch_batches

    def given(batch: Any) -> None:
        if torch.is_grad_enabled():  # else it is validation
            of_this_process().given(samples_in(batch))

    def passes_back(backward: Callable[..., None], *given: Any, **named: Any) -> None:
        of_this_process().passes_back()
        backward(*given, **named)

    register_optimizer_step_post_hook(lambda one, *_: of_this_process().by_optimizer(one))
    watch_batches(given)
    around(torch.autograd, "backward", passes_back)


def samples_in(batch: Any) -> int:
    """Return how many samples a batch has: the length of its first tensor; 0 if there is none."""
    from torch import Tensor

    if isinstance(batch, Tensor):
        return len(batch) if batch.dim() else 0
    parts = batch.values() if isinstance(batch, Mapping) else batch
    if isinstance(parts, str | bytes) or not hasattr(parts, "__iter__"):
        return 0
    return next((found for part in parts if (found := samples_in(part))), 0)
