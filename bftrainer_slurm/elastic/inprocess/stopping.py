"""After which step all ranks stop for a planned change: rank 0 says so, in that step."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from bftrainer_slurm.elastic.inprocess.collective import Communicator

_WORD_S = 0.2  # rank 0 says so often whether all stop; a broadcast in each short step slows it
_MOST_STEPS = 8  # without a word of rank 0, in case steps take longer suddenly


class Word:
    """Rank 0's last word, as this rank has heard it."""

    def __init__(self) -> None:
        self._word = torch.ones(1)  # 0: all stop after its step; else how many steps it holds for
        self._next = 0  # the step that follows the one of the last word
        self._heard_s = 0.0

    def begin(self, step: int) -> None:
        """A generation begins at this step."""
        self._word, self._next = torch.ones(1), step

    @property
    def stops(self) -> bool:
        """Whether all stop now; the step of the word has to be committed."""
        return not self._word

    def hear(self, group: Communicator, step: int, stops: Callable[[], bool]) -> None:
        """Begin to hear from rank 0 where its word is due; the step's commit waits for it.

        ``stops`` says, on rank 0, whether all stop.
        """
        if step < self._next + int(self._word) - 1:
            return
        now_s, steps = time.monotonic(), int(self._word)
        later = min(_MOST_STEPS, max(1, int(_WORD_S * steps / max(1e-6, now_s - self._heard_s))))
        self._heard_s, self._next = now_s, step + 1
        self._word = word = torch.tensor([0.0 if stops() else float(later)])
        group.attempt(lambda: group.launch(lambda: dist.broadcast(word, 0, async_op=True), word))
