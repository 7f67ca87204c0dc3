"""Gateways that pass each request on to another gateway, and act before and after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from bftrainer_slurm.slurm.detour import Detour
from bftrainer_slurm.slurm.gateway import Gateway, GatewayError, SlurmUnavailableError

_CHANGES_NOTHING = ("nodes", "queue", "reservations", "configuration", "last_pass")


class _Proxy:
    """Calls ``before`` with the name of a request, ``after`` also with its seconds and failure."""

    def __init__(
        self,
        gateway: Gateway,
        before: Callable[[str], object],
        after: Callable[[str, float, bool], object],
    ) -> None:
        self._gateway, self._before, self._after = gateway, before, after

    def __getattr__(self, name: str) -> Any:
        request = getattr(self._gateway, name)
        if not callable(request):
            return request

        def ask(*words: Any, **more: Any) -> Any:
            self._before(name)
            began_s, failed = time.monotonic(), False
            try:
                return request(*words, **more)
            except GatewayError:
                failed = True
                raise
            finally:
                self._after(name, time.monotonic() - began_s, failed)

        return ask


def metered(gateway: Gateway, note: Callable[[str, float, bool], None]) -> Gateway:
    """Return a gateway that calls ``note`` with each request's method, seconds, and failure."""
    return cast(Gateway, _Proxy(gateway, lambda name: None, note))


def leader_only(gateway: Gateway, leads: Callable[[], bool], detour: Detour) -> Gateway:
    """Return a gateway that refuses changes unless this host ``leads`` at that moment.

    A process ends soon after it has lost the lead, but a process that was stopped and continues
    might act before. ``detour`` avoids a silent host of slurmctld.
    """

    def before(name: str) -> None:
        if name not in _CHANGES_NOTHING and not leads():
            raise SlurmUnavailableError("another host's controller may be at work: nothing changed")
        detour.before_request()

    return cast(Gateway, _Proxy(gateway, before, lambda _, s, failed: detour.after_request(s)))
