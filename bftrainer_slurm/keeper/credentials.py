"""Proofs of who owns a process: by MUNGE, or by a secret of one user or of one trainer.

A proof covers the keeper's challenge, so nobody who overheard it can use it again. It gives the
member and the keeper a key that nobody else knows. All later lines are sealed with that key, so
nobody else can speak in the keeper's name. With MUNGE a trainer has a secret as well, for processes
in a container, where MUNGE is missing: the plugin on the node gets it for a credential.
"""

from __future__ import annotations

import ctypes
import hmac
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

MUNGE = "munge"
SECRET = "secret"
JOB = "job"
METHODS = (SECRET, MUNGE, JOB)

MUNGE_SOCKET = "BFTRAINER_MUNGE_SOCKET"  # where munged listens, if not at its usual place
SECRET_FILE = "BFTRAINER_SECRET_FILE"  # personal mode: the file with the user's secret
JOB_SECRET = "BFTRAINER_JOB_SECRET"  # the trainer's, from the SPANK plugin, where MUNGE is missing
KEEPER_UID = "BFTRAINER_KEEPER_UID"  # with MUNGE: the user that the keeper runs as

MAX_PROOF = 4_096
_OPTION_CIPHER, _OPTION_SOCKET, _OPTION_READER = 0, 8, 9  # munge.h, MUNGE_OPT_*
_AES_128 = 4  # munge.h, MUNGE_CIPHER_AES128
_SHORTEST_SECRET = 16
_KEY_BYTES = 32
_KEY = re.compile(rf"[0-9a-f]{{{2 * _KEY_BYTES}}}")


class CredentialError(Exception):
    """A proof could not be made, or is not good; the message says why."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a member sends to prove a text, and the ``key`` of the session that it begins."""

    text: str
    key: bytes


Prove = Callable[[str, str], Proof]


class Seal:
    """Seals one side's lines in a session, or checks them on the other: in order, each once."""

    def __init__(self, key: bytes, speaker: str) -> None:
        self._key = hmac.digest(key, speaker.encode(), "sha256")
        self._count = 0

    def close(self, line: bytes) -> bytes:
        """Return a line with its seal in front of it."""
        return self._next(line) + b" " + line

    def open(self, sealed: bytes) -> bytes:
        """Check the seal of the other side's next line; return the line.

        Raises:
            CredentialError: the seal was made without the key, or the line is not the next one.
        """
        seal, _, line = sealed.partition(b" ")
        if not hmac.compare_digest(seal, self._next(line)):
            raise CredentialError("it does not know the session's key")
        return line

    def _next(self, line: bytes) -> bytes:
        self._count += 1
        text = b"%d %b" % (self._count, line.rstrip(b"\n"))
        return hmac.digest(self._key, text, "sha256")[:16].hex().encode()


def seals(key: bytes) -> tuple[Seal, Seal]:
    """Return the seals of a session: one for the keeper's lines, one for the member's."""
    return Seal(key, "keeper"), Seal(key, "member")


@dataclass(frozen=True, slots=True)
class Means:
    """How members prove who owns them, and what that needs.

    ``munge_socket`` is where munged listens (None: as usual), ``key_file`` has the site's key.
    """

    method: str = SECRET
    munge_socket: str | None = None
    key_file: Path | None = None


def prover_from(environment: Mapping[str, str]) -> Prove:
    """Return a function that proves a payload by the method that the keeper asks for.

    It is called with the payload and the method, and raises CredentialError. It reads the secret
    file again each time, as a controller may make it later.
    """

    def prove(payload: str, method: str) -> Proof:
        if method != MUNGE:
            return prove_by_secret(_own_secret(method, environment), payload)
        try:
            munge = Munge(environment.get(MUNGE_SOCKET))
            return _prove_by_munge(munge, payload, environment.get(KEEPER_UID, ""))
        except CredentialError:
            if not environment.get(JOB_SECRET):
                raise
            return prove_by_secret(environment[JOB_SECRET].encode(), payload)

    return prove


def _own_secret(method: str, environment: Mapping[str, str]) -> bytes:
    name = {SECRET: SECRET_FILE, JOB: JOB_SECRET}.get(method, "what it needs")
    if not environment.get(name):
        raise CredentialError(f"the keeper wants a proof by '{method[:20]}'; {name} is not set")
    return read_secret(Path(environment[name])) if method == SECRET else environment[name].encode()


def read_secret(path: Path) -> bytes:
    """Return the secret, or the site's key, in a file that only its user may read.

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
        raise CredentialError(f"{path} holds no secret")
    return secret


def secret_of_job(key: bytes, array: int, uid: int) -> bytes:
    """Return the secret that only the processes of this user's trainer know.

    ``slurm_plugin/job_secret.c`` makes the same secret from the site's key, as root on the node.
    """
    return hmac.digest(key, f"bftrainer {array} {uid}".encode(), "sha256").hex().encode()


def secret_payload(array: int) -> str:
    """Return the text in the credential of who asks the keeper for its trainer's secret."""
    return f"bftrainer secret {array}"


def covered(secret: bytes, key: bytes) -> bytes:
    """Return a secret of hex digits for the network: only who made the ``key`` can read it.

    The key is as long as the secret, and used for nothing else. ``keeper_secret.c`` undoes this.
    """
    pairs = zip(bytes.fromhex(secret.decode()), key, strict=True)
    return bytes(one ^ other for one, other in pairs).hex().encode()


def prove_by_secret(secret: bytes, payload: str) -> Proof:
    """Return the proof that its maker knows the secret, as members and the keeper make it."""
    text = hmac.digest(secret, payload.encode(), "sha256").hex()
    return Proof(text, hmac.digest(secret, f"session {payload}".encode(), "sha256"))


def _prove_by_munge(munge: Munge, payload: str, keeper_uid: str) -> Proof:
    """Return a credential with the key in it, which munged opens only for the keeper's user.

    Raises:
        CredentialError: munged makes none, or the keeper's user is not known.
    """
    if not keeper_uid.isdecimal():
        raise CredentialError(
            f"{KEEPER_UID} does not say whose the keeper is; is the plugin of this node older?"
        )
    key = os.urandom(_KEY_BYTES)
    return Proof(munge.encode(f"{key.hex()} {payload}", int(keeper_uid)), key)


def is_secrets_proof(proof: str) -> bool:
    """Whether a proof is made with a secret; MUNGE's credentials look otherwise."""
    return _KEY.fullmatch(proof) is not None


def check_munge(said: str, payload: str) -> bytes:
    """Return the key from the text of a credential.

    Raises:
        CredentialError: it was not made for this payload.
    """
    key, _, proven = said.partition(" ")
    if proven != payload or not _KEY.fullmatch(key):
        raise CredentialError("the credential is for something else")
    return bytes.fromhex(key)


@dataclass(frozen=True, slots=True)
class Munge:
    """MUNGE, through libmunge; ``socket`` None: munged's usual one."""

    socket: str | None = None

    def encode(self, payload: str, reader: int | None = None) -> str:
        """Return a credential of this process's user for a payload.

        Only processes of the user ``reader`` can open it; None: everybody can.

        Raises:
            CredentialError: munged does not make one.
        """
        context = self._context()
        credential = ctypes.c_void_p()
        text = payload.encode()
        try:
            if reader is not None:
                self._set(context, _OPTION_READER, ctypes.c_uint32(reader))
                self._set(context, _OPTION_CIPHER, ctypes.c_int(_AES_128))
            self._check(
                context,
                _libmunge().munge_encode(ctypes.byref(credential), context, text, len(text)),
            )
            return ctypes.string_at(credential).decode("ascii")
        finally:
            _free(credential)
            _libmunge().munge_ctx_destroy(context)

    def decode(self, credential: str) -> tuple[str, int]:
        """Return a credential's payload, and the uid of the process that made it.

        Raises:
            CredentialError: munged does not vouch for it, or has seen it before.
        """
        context = self._context()
        payload, length, uid = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint32()
        try:
            self._check(
                context,
                _libmunge().munge_decode(
                    credential.encode(),
                    context,
                    *(ctypes.byref(payload), ctypes.byref(length), ctypes.byref(uid)),
                    None,
                ),
            )
            return ctypes.string_at(payload, length.value).decode("utf-8", "replace"), uid.value
        finally:
            _free(payload)  # it is set even if the credential is expired or replayed
            _libmunge().munge_ctx_destroy(context)

    def _context(self) -> ctypes.c_void_p:
        context = ctypes.c_void_p(_libmunge().munge_ctx_create())
        if not context:
            raise CredentialError("libmunge is out of memory")
        if self.socket is not None:
            self._set(context, _OPTION_SOCKET, ctypes.c_char_p(os.fsencode(self.socket)))
        return context

    def _set(self, context: ctypes.c_void_p, option: int, value: Any) -> None:
        self._check(context, _libmunge().munge_ctx_set(context, ctypes.c_int(option), value))

    def _check(self, context: ctypes.c_void_p, status: int) -> None:
        if status != 0:
            why = _libmunge().munge_ctx_strerror(context) or _libmunge().munge_strerror(status)
            raise CredentialError(f"munge: {why.decode('utf-8', 'replace')}")


@cache
def _libmunge() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libmunge.so.2")
    except OSError as error:
        raise CredentialError(f"MUNGE is not installed: {error}") from error
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_ctx_strerror.restype = ctypes.c_char_p
    library.munge_strerror.restype = ctypes.c_char_p
    return library


def _free(pointer: ctypes.c_void_p) -> None:
    libc = ctypes.CDLL(None)
    libc.free.argtypes = (ctypes.c_void_p,)
    libc.free.restype = None
    libc.free(pointer)
