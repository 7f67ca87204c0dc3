"""Passes questions about the history on to the reader, which listens in the state folder.

The keeper knows who asks; the reader knows the history, and can be slow without harm to members.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

SOCKET = "reader.sock"
_LONGEST_S = 20.0  # the reader itself gives up before
_NOBODY = (
    b'{"error":"no reader answers for the history: on the controller\'s host, '
    b"run 'systemctl enable --now bftrainer-reader', or 'bftrainer reader'\"}"
)


async def asked(folder: Path, what: str, since_s: int, user: int | None) -> bytes:
    """Return the reader's answer, as JSON. ``user`` None may see everything."""
    path = f"/history/{what}?since={since_s}" + ("" if user is None else f"&user={user}")
    try:
        async with asyncio.timeout(_LONGEST_S):
            reader, writer = await asyncio.open_unix_connection(folder / SOCKET)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode("ascii"))
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return _NOBODY
    return body if head.startswith(b"HTTP/") and body else _NOBODY
