"""A gateway that passes each request on to another gateway, and notes how it went."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from bftrainer_slurm.slurm.gateway import Gateway, GatewayError


class _Proxy:
    """Calls ``note`` with each request's method, seconds, and failure."""

    def __init__(self, gateway: Gateway, note: Callable[[str, float, bool], None]) -> None:
        self._gateway, self._note = gateway, note

    def __getattr__(self, name: str) -> Any:
        request = getattr(self._gateway, name)
        if not callable(request):
            return request

        def ask(*words: Any, **more: Any) -> Any:
            began_s, failed = time.monotonic(), False
            try:
                return request(*words, **more)
            except GatewayError:
                failed = True
                raise
            finally:
                self._note(name, time.monotonic() - began_s, failed)

        return ask


def metered(gateway: Gateway, note: Callable[[str, float, bool], None]) -> Gateway:
    """Return a gateway that calls ``note`` with each request's method, seconds, and failure."""
    return cast(Gateway, _Proxy(gateway, note))
