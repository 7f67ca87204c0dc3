"""The ids of trainers' runs: ARRAY.ATTEMPT, another one each time that a trainer begins anew.

Scripts and tools read them as TORCHELASTIC_RUN_ID, and take two runs with one id for the same.
"""

from __future__ import annotations

REMEMBERED = 20_000


class Attempts:
    """How often each trainer has begun, by array id; the last 20,000 that ended are remembered."""

    def __init__(self) -> None:
        self._ended: dict[int, int] = {}

    def name(self, array: int) -> str:
        """Return the id of the trainer's present run."""
        return f"{array}.{self._ended.get(array, 0) + 1}"

    def end(self, array: int) -> None:
        """The trainer's run is over: its next element begins another."""
        self._ended[array] = self._ended.pop(array, 0) + 1
        if len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]
