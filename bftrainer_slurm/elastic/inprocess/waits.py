"""Who waits for a collective of gloo's looks up now and then whether it may still end.

``Trainer`` does not block in its own. This is for the script's, FSDP2's, and DTensor's (by
``functional``): ``Work.wait()`` would return after half an hour (see ``Connections.shut_down``).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch.distributed import Work

from bftrainer_slurm.elastic.torch_private import is_of_kind

_LOOK = timedelta(seconds=1)
# gloo's wait for the first three with a timeout ends them, and the connection with them. Of no kind
# are reduce-scatters, which do not heed a timeout, and never say that they are complete.
_NOT_LOOKED_AT = ("SEND", "RECV", "RECVANYSOURCE", "UNKNOWN")


def look_up(check: Callable[[Work], None]) -> None:
    """Replace this process's ``Work.wait``: ``check`` is asked each second, and may raise."""
    works: Any = Work  # torch's type stubs know half of it
    wait = works.wait

    def wait_and_look_up(work: Any, *arguments: Any, **options: Any) -> bool:
        if arguments or options or is_of_kind(work, _NOT_LOOKED_AT):
            return bool(wait(work, *arguments, **options))
        while True:
            try:
                return bool(wait(work, _LOOK))
            except RuntimeError:  # also where its own failure has come, which it gives again
                if work.is_completed():
                    return bool(wait(work))
                check(work)

    works.wait = wait_and_look_up
