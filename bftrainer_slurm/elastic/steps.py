"""The progress memory: a few numbers that a training process writes, and its node's agent reads.

A step costs about a microsecond. Times are CLOCK_MONOTONIC, one clock for all processes of a
node, so that a pause is exact even if the processes before and after it are different ones.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from math import isnan, nan

from bftrainer_slurm.elastic import beginning, listeners
from bftrainer_slurm.elastic.log import say

VARIABLE = "BFTRAINER_STEPS"
KEPT = "BFTRAINER_STEPS_KEPT"  # a memory in which no agent looks: torchrun's own rendezvous
_NUMBERS = mmap.PAGESIZE
_SIZE = 256 * _NUMBERS  # a text follows the numbers; pages without a write take no memory
_STEPS, _SAMPLES, _FIRST_S, _LAST_S, _IN_PROCESS, _HIGHEST = range(6)
_ASKED, _ENDING, _SAVERS = range(6, 9)
_TEXT, _WRITTEN, _HEARD = range(9, 12)
_LOST, _LOST_SAMPLES, _AGAIN_S = range(12, 15)
_UNWANTED, _ALONE, _FROM_START, _RANKS, _TOLD = range(15, 20)
_BEGAN, _KEPT_S, _TRAINS_SINCE_S, _GENERATION, _OTHER_RANKS = range(20, 25)
_SAVED = 25  # from here on one number for each process of the node
_CLOCKS_S = 1.0  # by so much a file server's clock may be behind
_FROM_STEP_0, _FROM_CHECKPOINT = 1.0, 2.0  # how the present process began
_ZEROS = memoryview(bytes(_NUMBERS)).cast("d")


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What a memory says. The counts go on from one training process of the node to the next."""

    steps: int
    samples: float | None  # None: not known
    first_s: float  # of the process that trains now; 0: it has made no step yet
    last_s: float  # 0: there was no step yet
    in_process: bool  # elastic.Trainer trains, and reports by itself
    lost: int | None = None  # steps trained again, in all; None: their numbers are not known
    lost_samples: float | None = None  # in these; None: not known
    again_s: float = 0.0  # when the process that trains now began with steps again; 0: not
    alone: bool = False  # each process trains by itself: they are in no group together
    from_start: int | None = None  # how often in a row the script began at step 0 again
    kept_s: float = 0.0  # when it last wrote a file by torch; 0: never, or it saves when asked
    other_ranks: bool = False  # it went on with another number of ranks, and we do not translate


class Memory:
    """Memory that an agent and its workers share; it is freed with the last of them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._page = mmap.mmap(descriptor, _SIZE)
        # Whole numbers up to 2^53 are exact; a double is never half written.
        self.numbers = memoryview(self._page)[:_NUMBERS].cast("d")

    @classmethod
    def made(cls) -> Memory:
        """Return a new memory, all zero."""
        descriptor = os.memfd_create("bftrainer-steps")
        os.ftruncate(descriptor, _SIZE)
        return cls(descriptor)

    @classmethod
    def opened(cls, path: str) -> Memory:
        """Return the memory at its maker's ``path``.

        Raises:
            OSError: it is gone.
        """
        return cls(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    @property
    def made_s(self) -> float:
        """When it was made, which is when the agent began (time.time())."""
        return os.fstat(self._descriptor).st_ctime

    @property
    def path(self) -> str:
        """Where this user's other processes on this node open it; it leaves no file behind."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def read(self) -> StepCounts:
        """Return what is in it now."""
        steps, samples, first_s, last_s, in_process, highest = self.numbers[:6]
        lost, lost_samples, again_s = self.numbers[_LOST : _AGAIN_S + 1]
        return StepCounts(
            *(int(steps), _known(samples), first_s, last_s, bool(in_process)),
            *(int(lost) if highest > 0 else None, _known(lost_samples), again_s),
            bool(self.numbers[_ALONE]),
            int(self.numbers[_FROM_START]) if self.numbers[_BEGAN] else None,
            0.0 if self.numbers[_SAVERS] else self.numbers[_KEPT_S],
            bool(self.numbers[_OTHER_RANKS]),
        )

    def expect_first(self) -> None:
        """Say that the process that trained has ended: the next step is another one's first."""
        self.numbers[_FIRST_S] = self.numbers[_AGAIN_S] = 0.0

    # How an agent has its processes save before it ends them, see ``saving``.

    def begin(self) -> None:
        """Say that new processes begin, which are not asked for anything yet."""
        for number in (_ASKED, _ENDING, _SAVERS, _UNWANTED, _ALONE, _BEGAN):
            self.numbers[number] = 0.0
        self.numbers[_SAVED:] = _ZEROS[_SAVED:]

    def ask(self) -> None:
        """Ask the processes to save."""
        self.numbers[_ASKED] = 1.0

    @property
    def asked(self) -> bool:
        """Whether they have been asked to save."""
        return bool(self.numbers[_ASKED])

    def end(self) -> None:
        """Say that the next SIGTERM has to end the processes at once."""
        self.numbers[_ENDING] = 1.0

    @property
    def ending(self) -> bool:
        """Whether the next SIGTERM has to end them at once."""
        return bool(self.numbers[_ENDING])

    def end_when_done(self) -> None:
        """Say that processes which are through with their script are not waited for any more."""
        self.numbers[_UNWANTED] = 1.0

    @property
    def unwanted(self) -> bool:
        """Whether a process that is through with its script has to end at once."""
        return bool(self.numbers[_UNWANTED])

    def will_save(self, processes: int) -> None:
        """Say how many processes of this node save when they are asked."""
        self.numbers[_SAVERS] = processes

    def has_saved(self, local_rank: int) -> None:
        """Say that one of them has saved."""
        self.numbers[_SAVED + local_rank] = 1.0

    @property
    def saving(self) -> bool:
        """Whether some of the processes that save when asked have not saved yet."""
        savers = int(self.numbers[_SAVERS])
        return not all(self.numbers[_SAVED : _SAVED + savers])

    def begins_from_start(self) -> int:
        """Note that new processes began at step 0 again; return how often in a row."""
        self.numbers[_BEGAN] = _FROM_STEP_0
        self.numbers[_FROM_START] += 1
        return int(self.numbers[_FROM_START])

    def goes_on(self) -> None:
        """Note that new processes went on from what others had trained."""
        self.numbers[_BEGAN] = _FROM_CHECKPOINT
        self.numbers[_FROM_START] = 0.0

    def trains_since_s(self) -> float:
        """Return since when (time.time()) files can be checkpoints: the first step here, if any."""
        since_s = self.numbers[_TRAINS_SINCE_S]
        if not since_s:
            self.numbers[_TRAINS_SINCE_S] = time.time() - _CLOCKS_S
        return since_s or self.made_s

    def keep(self) -> None:
        """Note that the script has written what may be a checkpoint."""
        self.numbers[_KEPT_S] = time.monotonic()

    def train_on(self, ranks: int) -> int:
        """Note how many ranks train now; return how many trained before; 0: none on this node."""
        before, self.numbers[_RANKS] = int(self.numbers[_RANKS]), ranks
        return before

    def enter(self, generation: int) -> None:
        """Note the generation that this node is in: before the first one nobody can have told."""
        self.numbers[_GENERATION] = generation

    @property
    def is_first(self) -> bool:
        """Whether this is the trainer's first generation."""
        return self.numbers[_GENERATION] <= 1

    def goes_on_with_other_ranks(self) -> None:
        """Note that a checkpoint's counts of batches mean other samples now."""
        self.numbers[_OTHER_RANKS] = 1.0

    def tell_of_ranks(self) -> bool:
        """Return whether nobody has told yet what another number of ranks means; once."""
        told, self.numbers[_TOLD] = bool(self.numbers[_TOLD]), 1.0
        return not told

    # What the agent has to tell the script, see ``listeners``.

    def write(self, text: bytes) -> None:
        """Write a text over the last one; a text that is too long is not written."""
        if len(text) <= _SIZE - _NUMBERS:
            self._page[_NUMBERS : _NUMBERS + len(text)] = text
            self.numbers[_TEXT] = len(text)
            self.numbers[_WRITTEN] += 1

    @property
    def unread(self) -> bool:
        """Whether the text has not been read."""
        return self.numbers[_WRITTEN] > self.numbers[_HEARD]

    def text(self) -> bytes:
        """Return the text, which may be half written."""
        return self._page[_NUMBERS : _NUMBERS + int(self.numbers[_TEXT])]

    def has_read(self) -> None:
        """Say that it has been read."""
        self.numbers[_HEARD] = self.numbers[_WRITTEN]


class Steps:
    """The steps of this process: as its trainer or the script reports them, else its optimizers.

    They are counted in ``memory``; None: nobody wants to know. Between two of them the script is
    told of changes.
    """

    def __init__(self, memory: Memory | None) -> None:
        self._memory = memory
        self._before = [] if memory is None else memory.numbers[:_IN_PROCESS].tolist()
        self._begun = self._by_script = self._by_trainer = False
        self._in_group = False  # with all other processes
        self._seen = False  # an optimizer's first step
        self._numbered = False  # the script has told a step's number
        self._stepped: set[int] = set()
        self._given: int | None = None  # samples that this rank got since the last step

    def by_script(self, samples: float | None, number: int | None = None) -> None:
        """Count a step that the script reports; from the first report on only these count.

        ``samples`` are those of all ranks; None: not known. A step whose ``number`` is not above
        all numbers before is repeated: it was lost, and is counted as such only.
        """
        if not self._by_trainer:
            self._report(samples, number)

    def by_trainer(self, samples: float, number: int) -> None:
        """Count a step that ``Trainer`` reports; from the first report on only these count."""
        self._by_trainer = True
        self._report(samples, number)

    def by_optimizer(self, optimizer: object) -> None:
        """Count a step at an optimizer's first step, and whenever one that has stepped steps again.

        So two optimizers that take turns (a GAN's) count once a round, and a single one counts
        every time. The samples are those that DataLoaders gave this rank, times the ranks.
        """
        if self._memory is None:
            return
        if not self._in_group:
            self._in_group = _world() >= int(os.environ.get("WORLD_SIZE", "1"))
            self._memory.numbers[_ALONE] = not self._in_group
        if self._by_script or makes_state(optimizer):
            return
        if not self._seen:
            self._seen = True
            beginning.look(self._memory, self._before[_STEPS] > 0, _world())
        if not self._stepped or id(optimizer) in self._stepped:
            self._stepped.clear()
            self._count(self._memory, None if self._given is None else self._given * _world())
            self._given = self._given and 0
        self._stepped.add(id(optimizer))

    def wrote_file(self) -> None:
        """Note that the script has written a file by torch."""
        if self._memory is not None:
            self._memory.keep()

    def given(self, samples: int) -> None:
        """Note how many samples of a batch were given to be trained."""
        self._given = (self._given or 0) + samples

    def leave_to_trainer(self) -> None:
        """Stop counting: ``elastic.Trainer`` re-forms its group, and reports by itself."""
        if self._memory is not None:
            self._forget(self._memory)
            self._memory.numbers[_IN_PROCESS] = 1.0
            self._memory = None

    def _report(self, samples: float | None, number: int | None) -> None:
        if self._memory is None:
            return
        if not self._by_script:
            self._by_script = True
            self._forget(self._memory)
        self._count(self._memory, samples, number)

    def _forget(self, memory: Memory) -> None:
        """Take back this process's counts: from now on they come in another way."""
        for place, number in enumerate(self._before):
            memory.numbers[place] = number
        self._begun = False

    def _count(self, memory: Memory, samples: float | None, number: int | None = None) -> None:
        numbers = memory.numbers
        known = nan if samples is None else samples
        if memory.unread:
            listeners.hear_changes(memory)
        if number is not None:
            if not self._numbered and number > 1:
                memory.goes_on()
            self._numbered = True
            if number <= numbers[_HIGHEST]:
                numbers[_LOST] += 1
                numbers[_LOST_SAMPLES] += known
                numbers[_AGAIN_S] = numbers[_AGAIN_S] or time.monotonic()
                return
            numbers[_HIGHEST] = number
        now_s = time.monotonic()
        numbers[_STEPS] += 1
        numbers[_SAMPLES] += known
        numbers[_LAST_S] = now_s
        if not self._begun:
            self._begun = True
            numbers[_FIRST_S] = now_s


def _known(samples: float) -> float | None:
    return None if isnan(samples) else samples


def makes_state(optimizer: object) -> bool:
    """Whether torch.distributed.checkpoint steps it with a rate of 0, to make its state.

    It does so again and again if there is no state to make, as in SGD without momentum.
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
    path, kept = (os.environ.get(name) for name in (VARIABLE, KEPT))
    try:
        if path is not None:
            return Memory.opened(path)
        memory = None if kept is None else Memory.opened(kept)
        if memory is not None:
            memory.begin()
        if os.environ.get("RANK", "0") == "0":
            from bftrainer_slurm.elastic.reporting import report_from_here

            memory = memory or Memory.made()
            report_from_here(os.environ, memory)
        return memory
    except (OSError, ValueError, KeyError) as error:
        say(f"progress is not reported: {error}")
    return None
