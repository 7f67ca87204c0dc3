"""Speaking to the keeper byte by byte, also what no client of ours would say."""

from __future__ import annotations

import json
import socket
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any

from bftrainer_slurm.keeper.credentials import Seal, seals
from bftrainer_slurm.keeper.messages import Hello, Identity, Role, encode, payload
from bftrainer_slurm.keeper.protocol import GREETING
from tests.keeper.inside import prove_secret


class Wire(AbstractContextManager["Wire"]):
    """One connection, as a member's; ``challenge`` is the keeper's first word.

    ``seals`` are the keeper's and the member's, once a proof was sent.
    """

    def __init__(self, port: int, task: int = 1, array: int = 12, buffer: int = 0) -> None:
        self.identity = Identity(array, task, f"n{task}", Role.AGENT)
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(120)
        self.socket.connect(("127.0.0.1", port))
        self.lines = self.socket.makefile("rb")
        self.seals: tuple[Seal, Seal] | None = None
        self.send(GREETING + b"\n")
        self.challenge: dict[str, Any] = (self.read() or {}).get("challenge", {})

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, **message: object) -> None:
        self.say_line(json.dumps(message).encode() + b"\n")

    def say_line(self, *lines: bytes) -> None:
        """Say lines (their ends included) at once, with seals where there are some."""
        seals = self.seals
        self.send(b"".join(lines if seals is None else map(seals[1].close, lines)))

    def ask_at_once(self, count: int) -> None:
        """Ping so often, with the numbers from 1 on, in one segment.

        One, for where the member's receive buffer is full, what the keeper sends is beyond the
        window: the member's kernel drops it with the acknowledgements in it, and sends no more.
        """
        self.say_line(*(b'{"ping":{"number":%d}}\n' % number for number in range(1, count + 1)))

    def read(self) -> dict[str, Any] | None:
        """The keeper's next message; None: it has hung up."""
        try:
            line = self.lines.readline()
        except ConnectionError:
            return None
        if self.seals is not None and line and not line.startswith(b"{"):
            line = self.seals[0].open(line)
        return json.loads(line) if line else None

    def read_all(self) -> list[dict[str, Any]]:
        """All messages until it hangs up."""
        messages = []
        while (message := self.read()) is not None:
            messages.append(message)
        return messages

    def hello(self, **changed: object) -> dict[str, Any] | None:
        """Prove who this is, with some fields changed; return the answer."""
        hello = Hello("", self.identity, nonce="ab")
        proof = prove_secret(payload(self.challenge["nonce"], hello), "secret")
        said: dict[str, Any] = json.loads(encode(replace(hello, proof=proof.text)))["hello"]
        for name, value in changed.items():
            (said if name in said else said["identity"])[name] = value
        self.say(hello=said)
        self.seals = seals(proof.key)
        return self.read()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.lines.close()
        self.socket.close()
