"""Whose turn it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from bftrainer_slurm.keeper.fairness import HELD_S, PIECES, Turns


def done_of(add: Callable[[Turns, list[str]], None]) -> list[str]:
    """What was done, in order, once ``add`` has asked for it."""
    done: list[str] = []

    async def run() -> None:
        add(Turns(), done)
        for _ in range(1_000):
            await asyncio.sleep(0)

    asyncio.run(run())
    return done


def test_nobody_waits_for_more_than_one_piece_of_each_other() -> None:
    def add(turns: Turns, done: list[str]) -> None:
        for number in range(100):
            turns.add("greedy", partial(done.append, f"greedy {number}"))
        turns.add("modest", partial(done.append, "modest"))

    done = done_of(add)
    assert done.index("modest") == 1
    assert len(done) == 101


def test_what_is_ones_own_is_done_in_order() -> None:
    def add(turns: Turns, done: list[str]) -> None:
        for number in range(100):
            turns.add(number % 3, partial(done.append, f"{number:03}"))

    done = done_of(add)
    for user in range(3):
        own = [one for one in done if int(one) % 3 == user]
        assert own == sorted(own)


def test_the_loop_does_other_things_in_between() -> None:
    def add(turns: Turns, done: list[str]) -> None:
        for _ in range(10 * PIECES):
            turns.add("greedy", partial(done.append, "greedy"))
        turns._loop.call_soon(lambda: turns._loop.call_soon(done.append, "a socket"))

    assert done_of(add).index("a socket") <= 2 * PIECES


def test_a_piece_that_fails_stops_no_other() -> None:
    def add(turns: Turns, done: list[str]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: done.append("told"))
        turns.add("bad", lambda: done.index("nothing"))
        turns.add("good", partial(done.append, "good"))

    assert done_of(add) == ["told", "good"]


def test_who_is_held_up_waits_in_order_and_holds_up_nobody_else() -> None:
    done: list[str] = []

    async def run() -> None:
        held = {"slow"}
        turns = Turns(held.__contains__)
        for number in range(3):
            turns.add("slow", partial(done.append, f"slow {number}"))
            turns.add("quick", partial(done.append, f"quick {number}"))
        await asyncio.sleep(2 * HELD_S)
        turns.add("slow", partial(done.append, "slow 3"))
        turns.add("quick", partial(done.append, "quick 3"))
        await asyncio.sleep(2 * HELD_S)
        assert done == [f"quick {number}" for number in range(4)]
        held.clear()
        async with asyncio.timeout(120):
            while len(done) < 8:
                await asyncio.sleep(HELD_S)

    asyncio.run(run())
    assert done[4:] == [f"slow {number}" for number in range(4)]
