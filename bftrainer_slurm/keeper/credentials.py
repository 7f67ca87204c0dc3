"""How a client and the keeper prove to each other that they know one secret. Standard library only.

The client says ``hello VERSION WHO NONCE``. The keeper answers ``challenge NONCE2 PROOF``, and the
client then says ``proof PROOF2``. WHO is ``controller``, whose secret is the token, or a trainer's
array. A proof covers WHO, both nonces and its maker's role, so it is of no use anywhere else. After
it lines of JSON follow each way. ``slurm_plugin/keeper_note.c`` does the same for a node.
"""

from __future__ import annotations

import hmac
import os
import re
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.keeper.protocol import MAX_LINE, VERSION

CONTROLLER = "controller"
JOB_SECRET = "BFTRAINER_JOB_SECRET"  # in an element's environment: its trainer's secret
NONCE = re.compile(r"[0-9a-f]{32}")
_SHORTEST_SECRET = 16


class CredentialError(Exception):
    """Somebody has not proven who they are, or cannot; the message says why."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a keeper's proofs are made of. ``key_file`` has the site's key; None: personal mode.

    ``munge_socket`` is where munged listens (None: as usual), by which people prove who they are.
    """

    key_file: Path | None = None
    munge_socket: str | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """Whom a keeper believes: ``token`` is the controller's secret, ``key`` gives each trainer's.

    ``only_user``: all trainers are this user's (personal mode); -1: they have several.
    """

    token: str
    key: bytes
    only_user: int = -1
    munge_socket: str | None = None


def read_secret(path: Path) -> bytes:
    """Return the site's key, or one user's, in a file that only its owner may read.

    Raises:
        CredentialError: it cannot be read, others may read or own it, or it is too short.
    """
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            if about.st_uid not in (0, os.geteuid()):
                raise CredentialError(f"{path} is another user's, who knows it; chown it")
            if about.st_mode & 0o077:
                raise CredentialError(f"{path} is open to others; chmod 600 it")
            secret = file.read(1_024).strip()
    except OSError as error:
        raise CredentialError(f"{path} cannot be read: {error.strerror}") from error
    if len(secret) < _SHORTEST_SECRET:
        raise CredentialError(f"{path} holds no key")
    return secret


def secret_of_job(key: bytes, array: int, uid: int) -> bytes:
    """Return the secret that only the processes of this user's trainer know.

    ``slurm_plugin/job_secret.c`` makes the same from the site's key, as root on the node. That a
    trainer's record is not in it makes no difference: Slurm gives no array's number a second time
    before all others are used, and then the secret is another user's or that user's own.
    """
    return hmac.digest(key, f"bftrainer {array} {uid}".encode(), "sha256").hex().encode()


def new_nonce() -> str:
    """Return what makes a proof good for one connection only."""
    return os.urandom(16).hex()


def proof(secret: bytes, role: str, who: str, nonce: str, answer: str) -> str:
    """Return the proof of the ``keeper`` or the ``client``; ``answer`` is the keeper's nonce."""
    return hmac.digest(secret, f"{role} {who} {nonce} {answer}".encode(), "sha256").hex()


def challenge(secret: bytes, who: str, nonce: str) -> tuple[bytes, bytes]:
    """Return the keeper's answer to a hello, and the client's line that it waits for."""
    answer = new_nonce()
    own, wanted = (proof(secret, role, who, nonce, answer) for role in ("keeper", "client"))
    return f"challenge {answer} {own}\n".encode(), f"proof {wanted}".encode()


def introduce(
    connection: socket.socket, who: str, secret: bytes, message: bytes, limit_s: float
) -> None:
    """Prove to the keeper who we are, once it has proven itself; ``message`` goes with our proof.

    Raises:
        CredentialError: it is not our keeper, or does not let us in.
        OSError: it does not answer.
    """
    if not secret:
        raise CredentialError("there is no secret here to prove who this is")
    nonce = new_nonce()
    connection.settimeout(limit_s)
    connection.sendall(f"hello {VERSION} {who} {nonce}\n".encode())
    answer = _line(connection, limit_s)
    match answer.split():
        case ["challenge", other, given] if NONCE.fullmatch(other) and hmac.compare_digest(
            given.encode(), proof(secret, "keeper", who, nonce, other).encode()
        ):
            own = proof(secret, "client", who, nonce, other)
            connection.settimeout(limit_s)
            connection.sendall(f"proof {own}\n".encode() + message)
        case ["challenge", *_]:
            raise CredentialError("what answers there has another key than this process")
        case _:
            raise CredentialError(why_refused(answer) or "what answers there is not this keeper")


def why_refused(line: str) -> str:
    """Return why the keeper, or anybody, says no; empty if the line says something else."""
    word, _, why = line.partition(" ")
    clean = "".join(one if one.isprintable() else "?" for one in why.strip())
    return clean if word in ("refused", "error") else ""  # older keepers say error


def _line(connection: socket.socket, limit_s: float) -> str:
    """Return a line; the keeper says nothing after it until it is answered."""
    end_s, line = time.monotonic() + limit_s, b""
    while not line.endswith(b"\n") and len(line) < MAX_LINE:
        connection.settimeout(max(0.001, end_s - time.monotonic()))
        said = connection.recv(MAX_LINE - len(line))
        if not said:
            raise ConnectionResetError("the keeper hung up")
        line += said
    return line.decode("ascii", "replace").rstrip("\n")
