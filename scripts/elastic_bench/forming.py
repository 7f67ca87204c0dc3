"""How long gloo takes to form a group of processes on this host, by its size.

A round is ``init_process_group`` and the first ``all_reduce``, in processes that have imported
torch already, over a store in the bench's own process. All of them begin at one moment.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection

from scripts.benchkit.figures import summarise
from scripts.benchkit.text import table

SIZES = ("2", "4", "8", "16", "32", "64", "128", "256")
_LIMIT = timedelta(seconds=300)  # shows a hang, not a speed
_FORKS = get_context("forkserver")


@dataclass(frozen=True, slots=True)
class Round:
    """From the beginning until the last process had its group, and its first sum."""

    group_s: float
    sum_s: float
    each_s: float  # processor time of each process, on average
    store_s: float  # of the store


def measure(size: int, repeat: int) -> list[Round]:
    """Let as many processes form a group ``repeat`` times.

    Raises:
        TimeoutError: a round took too long.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    _FORKS.set_forkserver_preload(["torch.distributed"])
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipes = []
    for rank in range(size):
        ours, theirs = _FORKS.Pipe()
        _FORKS.Process(target=_run, args=(theirs, store.port, rank, size), daemon=True).start()
        theirs.close()  # so that a process that fails is noticed
        pipes.append(ours)
    _answers(pipes)  # all are there
    rounds = []
    for _ in range(repeat):
        begin_s = time.monotonic() + 0.2 + size / 500  # by then all have read it
        used_s = time.process_time()
        for pipe in pipes:
            pipe.send(begin_s)
        groups, sums, used = zip(*_answers(pipes), strict=True)
        store_s = time.process_time() - used_s
        rounds.append(Round(max(groups) - begin_s, max(sums) - begin_s, sum(used) / size, store_s))
    for pipe in pipes:
        pipe.send(None)  # the end
    return rounds


def formed(found: Mapping[str, Sequence[Round]]) -> str:
    """Return a table: of all rounds the median, the least and the most."""
    heads = ("GROUP FORMED", "FIRST SUM DONE", "PROCESSOR, EACH", "STORE", "ROUNDS")
    rows: list[Sequence[str]] = [("gloo forms a group; s", *heads)]
    for size, rounds in found.items():
        sums = [summarise([getattr(one, kind.name) for one in rounds]) for kind in fields(Round)]
        cells = [f"{each.median:.3f} ({each.least:.3f} to {each.most:.3f})" for each in sums]
        rows.append((f"{size} processes", *cells, str(len(rounds))))
    return table(rows)


def _answers(pipes: Sequence[Connection]) -> list[tuple[float, float, float]]:
    found = []
    for pipe in pipes:
        if not pipe.poll(_LIMIT.total_seconds()):
            raise TimeoutError(f"{len(pipes)} processes form no group in {_LIMIT}")
        found.append(pipe.recv())
    return found


def _run(pipe: Connection, port: int, rank: int, world: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, timeout=_LIMIT, wait_for_workers=False)  # type: ignore[attr-defined]
    pipe.send((0.0, 0.0, 0.0))
    for number, begin_s in enumerate(iter(pipe.recv, None)):
        group_store = dist.PrefixStore(str(number), store)  # type: ignore[attr-defined]
        used_s = time.process_time()
        time.sleep(max(0.0, begin_s - time.monotonic()))
        dist.init_process_group("gloo", None, _LIMIT, world, rank, group_store)
        formed_s = time.monotonic()
        dist.all_reduce(torch.ones(1))
        pipe.send((formed_s, time.monotonic(), time.process_time() - used_s))
        dist.destroy_process_group()
