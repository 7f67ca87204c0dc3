"""Trainers that the controller cannot handle: left alone and named, while others are served."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from bftrainer_slurm.slurm.gateway import GatewayError

logger = logging.getLogger(__name__)


class Faults:
    """Why trainers (by array) are left alone in this turn."""

    def __init__(self) -> None:
        self.why: dict[int, str] = {}
        self._said: dict[int, str] = {}

    def begin(self) -> None:
        """Begin a turn: each trainer gets another chance."""
        self._said, self.why = self.why, {}

    @contextmanager
    def of(self, array: int) -> Iterator[None]:
        """Do something for one trainer; an exception concerns that trainer only."""
        try:
            yield
        except GatewayError:
            raise
        except Exception as error:
            why = f"the controller cannot handle it: {type(error).__name__}: {error}"
            if why not in (self._said.get(array), self.why.get(array)):
                logger.exception("trainer %d is left alone for now", array)
            self.why[array] = why
