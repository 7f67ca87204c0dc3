"""Speaking to the keeper byte by byte, also what no client of ours would say."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any
from unittest.mock import patch

from bftrainer_slurm.keeper.credentials import CONTROLLER, proof
from bftrainer_slurm.keeper.messages import Identity, Join, Role, encode
from bftrainer_slurm.keeper.protocol import VERSION, parse_address
from tests.keeper.inside import TOKEN, Inside, secret_for

NONCE = "0123456789abcdef" * 2


class Wire(AbstractContextManager["Wire"]):
    """One connection of a trainer's process, of the controller or, without ``who``, of anybody.

    ``challenge`` is the keeper's first answer.
    """

    def __init__(self, keeper: Inside, task: int = 1, who: str = "12") -> None:
        self.identity = Identity(12, task, f"n{task}", Role.AGENT)
        self.who = who
        self.socket = socket.create_connection(parse_address(keeper.client.address), 120)
        self.lines = self.socket.makefile("rb")
        if who:
            self.send(f"hello {VERSION} {who} {NONCE}\n".encode())
            self.challenge = self.lines.readline().decode().split()

    @property
    def proof(self) -> str:
        """What proves that this is who it says."""
        secret = TOKEN.encode() if self.who == CONTROLLER else secret_for()
        return proof(secret, "client", self.who, NONCE, self.challenge[1])

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, **message: object) -> None:
        self.send(json.dumps(message).encode() + b"\n")

    def is_answered(self) -> bool:
        """Whether the keeper answers, and has said nothing else before."""
        self.say(ping={"number": 1})
        return self.read() == {"pong": {"number": 1}}

    def read(self) -> dict[str, Any] | None:
        """The keeper's next message, or why it refuses; None: it has hung up."""
        try:
            line = self.lines.readline()
        except ConnectionError:
            return None
        if line.startswith(b"refused "):
            return {"refused": line.decode().rstrip().removeprefix("refused ")}
        return json.loads(line) if line else None

    def read_all(self) -> list[dict[str, Any]]:
        """All messages until it hangs up."""
        messages = []
        while (message := self.read()) is not None:
            messages.append(message)
        return messages

    def prove(self) -> None:
        """Say what proves who this is."""
        self.send(f"proof {self.proof}\n".encode())

    def join(self) -> dict[str, Any] | None:
        """Prove who this is and join; return the answer."""
        self.prove()
        self.send(encode(Join(self.identity)))
        return self.read()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.lines.close()
        self.socket.close()


@contextmanager
def who_says(data: bytes, ends: bool = True) -> Iterator[socket.socket]:
    """Whoever connects hears this, and then that the other side has ended, or nothing more."""
    ours, theirs = socket.socketpair()
    with theirs, patch("socket.create_connection", lambda *_, **__: ours):
        theirs.sendall(data)
        if ends:
            theirs.shutdown(socket.SHUT_WR)
        yield ours


@contextmanager
def pair(keeper: Inside) -> Iterator[tuple[Wire, Wire]]:
    """Two that train together."""
    keeper.client.own(12, 0, 2)
    with Wire(keeper, task=1) as first, Wire(keeper, task=2) as second:
        for wire in (first, second):
            wire.join()
            wire.say(ready={"cause": "new", "error": ""})
        assert (first.read() or {})["generation"]["world"] == 2
        first.say(storeat={"endpoint": "n1:1", "generation": 1})
        assert (second.read() or {})["generation"]["rank"] == 1
        yield first, second
