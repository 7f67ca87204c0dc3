"""A keeper in a thread of the test: real sockets, a quick start."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

from bftrainer_slurm.keeper.client import KeeperClient
from bftrainer_slurm.keeper.credentials import Gate, secret_of_job
from bftrainer_slurm.keeper.membership import Membership
from bftrainer_slurm.keeper.messages import Generation, Identity, Role
from bftrainer_slurm.keeper.protocol import Note
from bftrainer_slurm.keeper.registry import Registry
from bftrainer_slurm.keeper.server import Keeper

TOKEN = "token"
KEY = b"a key of sixteen bytes or more"
STORE = "127.0.0.1:4321"


@dataclass
class Inside:
    """The keeper, and how to be a member of it."""

    client: KeeperClient
    loop: asyncio.AbstractEventLoop
    registry: Registry
    members: list[Membership] = field(default_factory=list)

    def member(
        self, task: int, secret: bytes | None = None, at: str = "", **options: Any
    ) -> Membership:
        """Start an agent's client, with its trainer's secret or another one.

        It looks for a keeper here, or ``at`` other addresses.
        """
        identity = Identity(12, task, f"n{task}", Role.AGENT)
        given = secret_for(12) if secret is None else secret
        member = Membership(at or self.client.address, identity, given, **options)
        member.start()
        self.members.append(member)
        return member

    def told(self) -> dict[str, Any]:
        """What the keeper says about itself."""
        self.client.publish({})
        _, status = self.client.status()
        assert status is not None
        return cast(dict[str, Any], status["keeper"])

    def counts(self) -> dict[str, int]:
        """What the keeper has refused, by kind."""
        return cast(dict[str, int], self.told()["refused"])

    def sweep(self, *silent_s: float) -> None:
        """Sweep once more, as if the members had been silent for so long, in their order."""

        def sweep_now() -> None:
            now_s = self.loop.time()
            self.registry._swept_s = now_s  # it has not stood still, however busy the machine is
            for session, seconds in zip(self.registry._sessions.values(), silent_s, strict=True):
                session.heard_s = now_s - seconds
            self.registry._sweep()

        self.loop.call_soon_threadsafe(sweep_now)

    def notes(self, count: int, identity: str = "", after: int = 0) -> list[Note]:
        """The first notes that the keeper has, waiting for them."""
        notes = (note.note for _, note in self.client.watch(identity, after) if note)
        return list(islice(notes, count))


def secret_for(array: int = 12, user: int | None = None) -> bytes:
    """The secret of a trainer of a user, who is this one if none is named."""
    return secret_of_job(KEY, array, os.getuid() if user is None else user)


@contextmanager
def keeper_inside(gate: Gate | None = None) -> Iterator[Inside]:
    """Run a keeper until the context ends; its members are closed with it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def begin() -> tuple[asyncio.Server, Registry]:
        keeper = Keeper(gate or Gate(TOKEN, KEY, only_user=os.getuid()))
        server = await keeper.listen("127.0.0.1", 0)
        return server, keeper.registry

    server, registry = asyncio.run_coroutine_threadsafe(begin(), loop).result(120)
    port = server.sockets[0].getsockname()[1]
    inside = Inside(KeeperClient(f"127.0.0.1:{port}", TOKEN, timeout_s=120), loop, registry)
    try:
        yield inside
    finally:
        for member in inside.members:
            member.close()

        async def end() -> None:
            server.close()
            for session in [*registry._sessions.values()]:
                session.hang_up()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        asyncio.run_coroutine_threadsafe(end(), loop).result(120)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(120)


def together(members: list[Membership], cause: str = "new") -> list[Generation]:
    """Let members get into a generation; return what each was told, in their order."""

    def get_in(member: Membership) -> Generation:
        generation = member.wait_generation(120)
        if generation.store is None:
            member.offer_store(generation.number, STORE)
        return generation

    for member in members:
        member.ready(cause)
    with ThreadPoolExecutor(len(members)) as each:
        return [*each.map(get_in, members)]
