"""Whole conversations with a keeper: several connections at once, before and after their proof.

The input is a script of steps, each ended by a NUL: the first byte says which connection, the
rest is what it sends, or one of the ``!`` words below. Sockets and time are the only things that
are not real.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from bftrainer_slurm.keeper.credentials import Gate, proof
from bftrainer_slurm.keeper.messages import Identity, Join, Role, encode, parse_from_keeper
from bftrainer_slurm.keeper.protocol import MAX_ANSWER, VERSION
from bftrainer_slurm.keeper.server import Keeper
from tests.fuzz import promise

CONNECTIONS = 4
_MAX_STEPS = 64
_KEY = b"a key of sixteen bytes or more"
_ARRAY = 12
_NONCE = "0" * 32
_ROLES = {f"!{role.value}".encode(): role for role in Role}


def conversation(data: bytes) -> None:
    """Let strangers and members say what DATA says, and then all go away."""
    loop = _Loop()
    asyncio.set_event_loop(loop)
    broken: list[str] = []
    loop.set_exception_handler(lambda _, context: broken.append(repr(context)))
    try:
        loop.run_until_complete(_talk(data.split(b"\0")[:_MAX_STEPS], loop))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    promise(not broken, "; ".join(broken))


async def _talk(steps: list[bytes], loop: _Loop) -> None:
    keeper = Keeper(Gate("token", _KEY, only_user=os.getuid()))
    keeper.registry.own(_ARRAY, 0, 2)
    lines = [_Line(keeper, number) for number in range(CONNECTIONS)]
    for step in steps:
        if not step:
            continue
        line, said = lines[step[0] % CONNECTIONS], step[1:]
        if said == b"!wait":
            loop.ahead_s += 3.0
        else:
            line.step(said)
        await _settled()
    for line in lines:
        line.hang_up()
    await _settled()
    promise(keeper.registry.status()["members"] == 0, "a member that has gone is still counted")
    # What still waits for a time limit is ended; what has ended has ended without an error.
    tasks = loop.tasks - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    for found in await asyncio.gather(*tasks, return_exceptions=True):
        good = found is None or isinstance(found, asyncio.CancelledError)
        promise(good, f"a task ended in {found!r}")


async def _settled() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


class _Line:
    """One stranger, who connects again when it was hung up on."""

    def __init__(self, keeper: Keeper, number: int) -> None:
        self._keeper = keeper
        self._number = number
        self._wire: _Wire | None = None

    def step(self, said: bytes) -> None:
        if self._wire is None or self._wire.over:
            self._wire = _Wire(self._keeper.registry.session())
        if said == b"!close":
            self.hang_up()
        elif said in _ROLES:
            self._introduce(self._wire, str(_ARRAY))
            where = Identity(_ARRAY, self._number, f"n{self._number}", _ROLES[said])
            self._wire.hear(encode(Join(where)))
        elif said == b"!token":
            self._introduce(self._wire, "controller")
        else:
            self._wire.hear(said)

    def _introduce(self, wire: _Wire, who: str) -> None:
        """Prove it, if the keeper has been asked for a challenge and nothing else."""
        wire.hear(f"hello {VERSION} {who} {_NONCE}\n".encode())
        secret, words = self._keeper.registry.secret(who), wire.first.split()
        answer = words[1].decode() if words[:1] == [b"challenge"] else ""
        wire.hear(f"proof {proof(secret, 'client', who, _NONCE, answer)}\n".encode())

    def hang_up(self) -> None:
        if self._wire is not None:
            self._wire.abort()
            self._wire = None


class _Wire(asyncio.Transport):
    """A connection without a socket: what is written to it is checked, and forgotten."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol: Any = protocol
        self.over = False
        self.first = b""  # the first line that was written
        protocol.connection_made(self)

    def hear(self, data: bytes) -> None:
        if not self.over:
            self.protocol.data_received(data)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        written = bytes(data)
        promise(len(written) <= MAX_ANSWER, "more than a member takes")
        if written.startswith((b'{"members"', b'{"note"', b'{"refused"')):
            pass  # the keeper's own status, a controller's stream, a word to older members
        elif written.startswith(b"{"):
            parse_from_keeper(written)
        self.first = self.first or written.partition(b"\n")[0]

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self.over

    def close(self) -> None:
        if not self.over:
            self.over = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def get_write_buffer_size(self) -> int:
        return 0


class _Loop(asyncio.SelectorEventLoop):
    """A loop whose time can be put ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0
        self.tasks: set[Any] = set()

    def create_task(self, *what: Any, **options: Any) -> asyncio.Task[Any]:
        self.tasks.add(task := super().create_task(*what, **options))
        return task

    def time(self) -> float:
        return super().time() + self.ahead_s
