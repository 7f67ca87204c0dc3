"""A keeper for tests of the plugin: proves itself, answers, and records what it was told."""

from __future__ import annotations

import hmac
import json
import pwd
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bftrainer_slurm.keeper.credentials import challenge, secret_of_job
from scripts.labcluster.cluster import free_ports


@dataclass
class FakeKeeper:
    """Listens on a free port of the loopback address while the context is open.

    ``key`` is the site's, ``user`` whose all trainers are; ``lines`` have an ``up`` as words, too.
    """

    port: int = 0
    key: bytes = b""
    user: str = "root"
    lines: list[str] = field(default_factory=list)
    met: set[str] = field(default_factory=set)  # arrays of which an element has come up
    finished: bool = False  # what it says of trainings

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> FakeKeeper:
        keeper = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                line = self.rfile.readline(512).decode("ascii", "replace").strip()
                if line.startswith("hello "):
                    _, _, who, nonce = line.split()
                    secret = keeper.secret(int(who))
                    said, wanted = challenge(secret, who, nonce)
                    self.wfile.write(said)
                    if not hmac.compare_digest(self.rfile.readline(512).rstrip(), wanted):
                        return
                    up = json.loads(self.rfile.readline(512))["up"]
                    line = f"up {who} {up['task']} {up['node']}"
                keeper.lines.append(line)
                self.wfile.write(keeper.answer(line).encode() + b"\n")

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        # Not one of the kernel's own choice: while nobody listens there, a connection to elsewhere
        # could begin there.
        self.port = self.port or free_ports(1)[0]
        self._server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def away(self) -> Iterator[None]:
        """It has ended, and its host refuses connections."""
        self._server.shutdown()
        self._server.server_close()
        try:
            yield
        finally:
            self.__enter__()

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """As if its host were gone: nothing answers, not even to refuse a connection."""
        with self.away(), socket.create_server(("127.0.0.1", self.port), backlog=0) as full:
            kinds = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
            waiting = [socket.socket(type=kinds) for _ in range(8)]
            for one in waiting:
                one.connect_ex(full.getsockname())
            try:
                yield
            finally:
                for one in waiting:
                    one.close()

    def secret(self, array: int) -> bytes:
        """Return a trainer's secret."""
        return secret_of_job(self.key, array, pwd.getpwnam(self.user).pw_uid)

    def answer(self, line: str) -> str:
        words = line.split()
        if words[:1] == ["up"] and len(words) == 4:
            first = json.dumps(words[1] not in self.met)
            self.met.add(words[1])
            run = f'{{"started":{{"run":"run-{words[1]}","first":{first}}}}}'
            return '{"finished":{"code":0}}' if self.finished else run
        if words == ["submitted"] or (words[:1] in (["leaving"], ["gone"]) and len(words) == 4):
            return "ok"
        return "refused not a request"
