"""Speaking to the keeper byte by byte, also what no client of ours would say."""

from __future__ import annotations

import json
import socket
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from bftrainer_slurm.keeper.credentials import proof
from bftrainer_slurm.keeper.messages import Identity, Join, Role, encode
from bftrainer_slurm.keeper.protocol import VERSION
from tests.keeper.inside import secret_for

NONCE = "0123456789abcdef" * 2


class Wire(AbstractContextManager["Wire"]):
    """One connection, as a trainer's process; ``challenge`` is the keeper's first answer."""

    def __init__(self, port: int, task: int = 1, array: int = 12, buffer: int = 0) -> None:
        self.identity = Identity(array, task, f"n{task}", Role.AGENT)
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(120)
        self.socket.connect(("127.0.0.1", port))
        self.lines = self.socket.makefile("rb")
        self.send(f"hello {VERSION} {array} {NONCE}\n".encode())
        self.challenge = self.lines.readline().decode().split()

    @property
    def proof(self) -> str:
        """What proves that this is a process of the trainer."""
        array = self.identity.array
        return proof(secret_for(array), "client", str(array), NONCE, self.challenge[1])

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, **message: object) -> None:
        self.send(json.dumps(message).encode() + b"\n")

    def ask_at_once(self, count: int) -> None:
        """Ping so often, with the numbers from 1 on, in one segment.

        One, for where the member's receive buffer is full, what the keeper sends is beyond the
        window: the member's kernel drops it with the acknowledgements in it, and sends no more.
        """
        numbers = range(1, count + 1)
        self.send(b"".join(b'{"ping":{"number":%d}}\n' % number for number in numbers))

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

    def prove(self, proof: str = "") -> None:
        """Say what proves who this is."""
        self.send(f"proof {proof or self.proof}\n".encode(errors="surrogatepass"))

    def join(self, **changed: object) -> dict[str, Any] | None:
        """Prove who this is and join, with some fields changed; return the answer."""
        self.prove()
        said: dict[str, Any] = json.loads(encode(Join(self.identity)))["join"]
        for name, value in changed.items():
            (said if name in said else said["identity"])[name] = value
        self.say(join=said)
        return self.read()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.lines.close()
        self.socket.close()
