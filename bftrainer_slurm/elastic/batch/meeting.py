"""A batch task's connection to the keeper: says what it does, again after each connection."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import cycle

from bftrainer_slurm.elastic.place import read_identity
from bftrainer_slurm.keeper.credentials import CredentialError, prover_from
from bftrainer_slurm.keeper.membership import CONNECT_S, Link
from bftrainer_slurm.keeper.messages import (
    Batch,
    Challenge,
    Hello,
    Ping,
    Refused,
    Role,
    Turn,
    Welcome,
    encode,
    payload,
)
from bftrainer_slurm.keeper.protocol import GREETING, parse_addresses

PING_S = 1.0
SILENCE_S = 10.0
PAUSE_S = (0.2, 2.0)  # between two tries to connect
IN_VAIN = 3  # an older keeper hangs up so often


class Meeting:
    """Tells the keeper what this batch task does, and hears what it shall do."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._addresses = parse_addresses(environment["BFTRAINER_KEEPER"])
        self._identity = read_identity(environment, Role.BATCH)
        self._prove = prover_from(environment)
        self._changed = threading.Condition()
        self._said = Batch("waits")
        self._unsent = True
        self._turn: Turn | None = None  # the newest since the last ``say``
        self.lost_s: float | None = time.monotonic()  # since when there is no connection
        self.knows = True  # what answers may be a keeper that knows what this is about
        self.returns = False  # there will be one: it is started anew, or lets nobody in yet
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self.failed = 0  # the script's exit code, if it has ended badly while a step goes on here
        self.on_trains: Callable[[int], object] = lambda step: None
        threading.Thread(target=self._live, name="bftrainer-batch", daemon=True).start()

    def say(self, batch: Batch) -> None:
        """Say what this task does now; what it was told before holds no longer."""
        with self._changed:
            if batch.doing != self._said.doing:
                self._turn = None
            self._said, self._unsent = batch, True
            self._wake()

    def wait(self, timeout_s: float) -> Turn | None:
        """Return the newest turn, once; None: there was none in that time."""
        with self._changed:
            self._changed.wait_for(lambda: self._turn is not None, timeout_s)
            turn, self._turn = self._turn, None
            return turn

    def wait_until_sent(self, timeout_s: float) -> None:
        """Wait until what was said last is with the keeper."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unsent, timeout_s)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_in.send(b".")

    def _live(self) -> None:
        pause_s, in_vain = PAUSE_S[0], 0
        for address in cycle(self._addresses):
            try:
                with socket.create_connection(address, CONNECT_S) as connection:
                    link = Link(connection)
                    self._join(link)
                    pause_s, in_vain = PAUSE_S[0], 0
                    self._speak(link)
            except ConnectionRefusedError:
                self.returns, in_vain = True, 0
            except (ConnectionResetError, ValueError):
                in_vain += 1
                self.knows = in_vain < IN_VAIN
            except (OSError, CredentialError):
                pass
            with self._changed:
                self._unsent = True
                if self.lost_s is None:
                    self.lost_s = time.monotonic()
            time.sleep(pause_s)
            pause_s = min(PAUSE_S[1], 2 * pause_s)

    def _join(self, link: Link) -> None:
        link.send(GREETING + b"\n")
        challenge = link.next(CONNECT_S)
        if not isinstance(challenge, Challenge):
            raise ConnectionError("what answers there is not a keeper")
        hello = Hello("", self._identity, None, os.urandom(16).hex())
        proof = self._prove(payload(challenge.nonce, hello), challenge.method)
        link.send(encode(replace(hello, proof=proof.text)))
        link.seal(proof.key)
        answer = link.next(2 * CONNECT_S)
        if not isinstance(answer, Welcome):
            self.returns = isinstance(answer, Refused)
            raise ConnectionError("it does not let this element in")
        with self._changed:
            self.lost_s, self._unsent = None, True

    def _speak(self, link: Link) -> None:
        ping_s, number = time.monotonic(), 0
        with selectors.DefaultSelector() as selector:
            selector.register(link.connection, selectors.EVENT_READ)
            selector.register(self._wake_out, selectors.EVENT_READ)
            for message in link.pending:
                self._hear(message)
            while True:
                self._send(link)
                now_s = time.monotonic()
                if now_s >= ping_s:
                    number, ping_s = number + 1, now_s + PING_S
                    link.send(encode(Ping(number)))
                if now_s - link.heard_s > SILENCE_S:
                    raise ConnectionError("it is silent")
                for key, _ in selector.select(max(0.0, ping_s - time.monotonic())):
                    if key.fileobj is self._wake_out:
                        self._wake_out.recv(4096)
                    else:
                        for message in link.receive():
                            self._hear(message)

    def _send(self, link: Link) -> None:
        with self._changed:
            said = self._said if self._unsent else None
        if said is None:
            return
        link.send(encode(said))
        with self._changed:
            if said is self._said:
                self._unsent = False
                self._changed.notify_all()

    def _hear(self, message: object) -> None:
        if not isinstance(message, Turn):
            return
        with self._changed:
            said = self._said
            if message.do == "over" and said.doing == "steps":
                self.failed = message.code
            elif said.doing == "waits":
                self._turn = message
            self._changed.notify_all()
        if message.do == "trains":
            self.on_trains(message.step)
