"""Asks the reader without a port: one request to the ASGI application."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from starlette.types import ASGIApp, Message

from bftrainer_slurm.reader.facts import Facts

SOMEBODY = ("127.0.0.1", 1)


@dataclass
class Answer:
    """What was answered."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def answer_of(
    app: ASGIApp,
    path: str,
    query: str = "",
    method: str = "GET",
    client: tuple[str, int] | None = SOMEBODY,
    **headers: str,
) -> Answer:
    """The answer to a request; ``client`` None: through the socket in the state folder."""
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": quote(query, "/?&=%+;!").encode(),
        "headers": [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ],
        "client": client,
    }
    answer = Answer()

    async def receive() -> Message:
        return await asyncio.Future[Message]()  # nobody sends a body

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    asyncio.run(app(scope, receive, send))
    return answer


def facts_of(status: dict[str, Any] | None, age_s: float = 0.0) -> Facts:
    """Facts that are always the same, and always of the same age."""
    made_s = 0.0 if status is None else status["time_s"]
    return Facts(lambda: (0.0, status and dict(status)), clock=lambda: made_s + age_s)
