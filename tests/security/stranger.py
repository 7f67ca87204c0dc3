"""What a user's process may try at the keeper's port.

stranger.py ATTACK HOST:PORT ARRAY VERSION
"""

from __future__ import annotations

import contextlib
import resource
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

TIMES = 5
GREETING = f"hello {sys.argv[4]} {sys.argv[3]} {'0' * 32}\n".encode()
TO_RULE = GREETING.replace(sys.argv[3].encode(), b"controller")
PROOF = b"proof " + b"0" * 64 + b"\n"
JOIN = b'{"join":{"identity":{"array":%d,"task":0,"node":"n1","role":"agent"}}}\n'


def main() -> None:
    attack, address, array = sys.argv[1:4]
    host, _, port = address.rpartition(":")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    ATTACKS[attack](lambda: socket.create_connection((host, int(port)), 10), int(array))


Connect = Callable[[], socket.socket]


def garbage(connect: Connect, array: int) -> None:
    """Bytes that are nothing, lines that never end, questions that only the controller may ask."""
    lines = [b"\0" * 600, b"\xff" * 100 + b"\n", b"x" * 100_000, GREETING + b"[" * 70_000]
    lines += [GREETING + b"{}\n", GREETING + JOIN % array, GREETING + PROOF + JOIN % array]
    lines += [b"GET / HTTP/1.1\r\n\r\n", GREETING + b"\0" * 99 + b"\n"]
    asked = (
        *(b'{"own":{"array":%d,"uid":0,"want":9}}' % array, b'{"show":{}}'),
        *(b'{"tell":{"array":%d,"what":"ended"}}' % array, b'{"publish":{"length":2}}\n{}'),
        *(b'{"lost":{"array":%d,"task":0}}' % array, b'{"watch":{"identity":"","after":0}}'),
    )
    lines += [TO_RULE + PROOF + one + b"\n" for one in asked]
    for line in lines * TIMES:
        with contextlib.suppress(OSError), connect() as connection:
            connection.sendall(line)
            connection.settimeout(1)
            while connection.recv(4_096):
                pass


def hints(connect: Connect, array: int) -> None:
    """Say of somebody else's elements that they are gone, that they leave, and that they came."""
    for number in range(600):
        for line in (
            b"gone %d 0 n1\n",
            b"leaving %d 1 n2\n",
            b"up %d 0 n3\n",
            b"leaving %d 7 n1\n",
        ):
            with contextlib.suppress(OSError), connect() as connection:
                connection.sendall(line % (array if number % 2 else 10**9 + number))


def silence(connect: Connect, array: int) -> None:
    """Sit in the door: as many connections as there can be, which say nothing, or half a word."""
    with ExitStack() as stack:
        open_ones: list[socket.socket] = []
        print("sits", flush=True)
        end_s = time.monotonic() + 6
        while time.monotonic() < end_s:
            with contextlib.suppress(OSError):
                connection = stack.enter_context(connect())
                connection.sendall((b"", b"hel", GREETING)[len(open_ones) % 3])
                open_ones.append(connection)
            if len(open_ones) >= 7_000:
                time.sleep(0.05)


def readers(connect: Connect, array: int) -> None:
    """Ask for the status and never read it."""
    with ExitStack() as stack:
        for _ in range(800):
            with contextlib.suppress(OSError):
                connection = stack.enter_context(connect())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_024)
                connection.sendall(b"status\n")
        print("sits", flush=True)
        time.sleep(4)


ATTACKS = {"garbage": garbage, "hints": hints, "silence": silence, "readers": readers}

if __name__ == "__main__":
    main()
