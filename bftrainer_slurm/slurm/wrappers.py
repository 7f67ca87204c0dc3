"""Gateways that pass each request on to another one, and see to something before and after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from bftrainer_slurm.slurm.detour import Detour
from bftrainer_slurm.slurm.gateway import Gateway, GatewayError, SlurmUnavailableError

_CHANGES_NOTHING = ("nodes", "queue", "reservations", "configuration", "last_pass")
# What looks cost beside the queue (docs/internals/rpcs.md).
_LOOK_RPCS = {"nodes": 2, "reservations": 1, "last_pass": 1, "configuration": 3}


class _Wrapped:
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


def metered(
    gateway: Gateway, note: Callable[[str, float, bool], None], draw: Callable[[int], None]
) -> Gateway:
    """Return a gateway of which each request is noted: its method, its seconds, whether it failed.

    ``draw`` is told how many RPCs a look is about to take.
    """

    def before(name: str) -> None:
        draw(gateway.queue_rpcs if name == "queue" else _LOOK_RPCS.get(name, 0))

    return cast(Gateway, _Wrapped(gateway, before, note))


def of_leader(gateway: Gateway, leads: Callable[[], bool], detour: Detour) -> Gateway:
    """Return a gateway that changes nothing unless this host ``leads`` at that moment.

    The process ends soon after it has lost the lead, but a process that was stopped and goes on
    might act first. ``detour`` avoids a silent host of slurmctld.
    """

    def before(name: str) -> None:
        if name not in _CHANGES_NOTHING and not leads():
            raise SlurmUnavailableError("another host's controller may be at work: nothing changed")
        detour.mind()

    return cast(Gateway, _Wrapped(gateway, before, lambda _, took_s, failed: detour.took(took_s)))
