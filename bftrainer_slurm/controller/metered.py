"""Counts what Slurm is asked, and how long its answers take. Asks nothing by itself."""

from __future__ import annotations

import time
from typing import Any

from bftrainer_slurm.controller.state.counts import Counts
from bftrainer_slurm.slurm.gateway import Gateway, GatewayError


class MeteredGateway:
    """A gateway like the one that it is given; ``counts`` gets a line for each of its methods."""

    def __init__(self, gateway: Gateway, counts: Counts) -> None:
        self._gateway = gateway
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        request = getattr(self._gateway, name)
        if not callable(request):
            return request

        def ask(*words: Any, **more: Any) -> Any:
            began_s = time.monotonic()
            try:
                return request(*words, **more)
            except GatewayError:
                self._counts.failed_requests[name] += 1
                raise
            finally:
                self._counts.requests[name].add(time.monotonic() - began_s)

        return ask
