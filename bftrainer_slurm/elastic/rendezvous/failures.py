"""What torchrun knows and a rendezvous handler is not told: how its workers have failed."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from torch.distributed.elastic.multiprocessing.api import PContext
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from bftrainer_slurm.elastic.around import around

_MAX_TEXT = 1_900  # characters: a note holds 2 kB
_PEERS_WORD_S = 2.0  # news of a lost or failed peer comes at once, or later if hosts are busy
UNKNOWN = "a worker ended without an exception"
# What gloo, NCCL and the TCPStore say when the process at the other end is gone.
_PEERS = re.compile(
    r"closed by peer|reset by peer|broken pipe|remote process|connection was likely closed"
    r"|connection refused|DistNetworkError",
    re.IGNORECASE,
)


class LastFailure:
    """Remembers how this node's workers have failed last, as torchrun is told of it."""

    def __init__(self) -> None:
        self._text = UNKNOWN
        around(PContext, "wait", self._wait)

    def _wait(self, wait: Callable[..., Any], workers: Any, *given: Any, **named: Any) -> Any:
        result = wait(workers, *given, **named)
        if result is not None and result.is_failed():
            first = min(result.failures.values(), key=lambda one: one.timestamp)
            self._text = last_lines(text_of(first))
        return result

    def take(self) -> str:
        """Return the last failure's last lines, and forget it."""
        text, self._text = self._text, UNKNOWN
        return text


def text_of(failure: ProcessFailure) -> str:
    """Return an exception with its traceback; or how a worker without one has ended."""
    written = failure.error_file_data.get("message")
    if isinstance(written, dict):
        return str(written.get("extraInfo", {}).get("py_callstack") or written.get("message"))
    if failure.exitcode < 0:
        return f"process {failure.local_rank} terminated with signal {failure.signal_name()}"
    return f"process {failure.local_rank} terminated with exit code {failure.exitcode}"


def cause_of(text: str, over: threading.Event) -> tuple[str, str]:
    """Return why workers that failed with this text are started again, and the failure.

    ``over``: the keeper has ended their generation. An error of their own is told all the same.
    """
    if over.is_set() or (is_peers(text) and over.wait(_PEERS_WORD_S)):
        return "change", "" if text == UNKNOWN or is_peers(text) else text
    return "failed", text


def last_lines(text: str) -> str:
    """Return the last whole lines of a text that fit a note."""
    text = text.strip()
    if len(text) <= _MAX_TEXT:
        return text
    kept = text[-_MAX_TEXT:]
    _, newline, whole = kept.partition("\n")
    return whole if newline else kept


def is_peers(text: str) -> bool:
    """Whether a failure looks as if another node caused it."""
    return _PEERS.search(text.splitlines()[-1] if text else "") is not None
