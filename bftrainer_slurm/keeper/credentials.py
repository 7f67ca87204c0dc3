"""Proving and checking whose process speaks: by MUNGE, or a secret of one user or one trainer.

All cover the keeper's challenge, so that what was overheard is of no use a second time.
"""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MUNGE = "munge"
SECRET = "secret"
JOB = "job"
METHODS = (SECRET, MUNGE, JOB)
SHARED = (SECRET, JOB)  # both sides know it, so that the keeper proves itself as well

MUNGE_SOCKET = "BFTRAINER_MUNGE_SOCKET"  # where munged listens, if not where it usually does
SECRET_FILE = "BFTRAINER_SECRET_FILE"  # personal mode: the file with the user's secret
JOB_SECRET = "BFTRAINER_JOB_SECRET"  # without MUNGE: the trainer's, from the SPANK plugin

MAX_PROOF = 4_096
_OPTION_SOCKET = 8  # munge.h, MUNGE_OPT_SOCKET
_SHORTEST_SECRET = 16

Prove = Callable[[str, tuple[str, ...]], tuple[str, str]]


class CredentialError(Exception):
    """A proof could not be made, or is not good; the message says why."""


@dataclass(frozen=True, slots=True)
class Means:
    """How members prove whose they are, and what that needs.

    ``munge_socket`` is where munged listens (None: as usual), ``key_file`` has the site's key.
    """

    method: str = SECRET
    munge_socket: str | None = None
    key_file: Path | None = None


def prover_from(environment: Mapping[str, str]) -> Prove:
    """Return what proves a payload by one of the methods that the keeper takes.

    It is called with the payload and the methods, returns method and proof, and raises
    CredentialError. The secret file is read anew each time, as a controller may come to make it.
    """

    def prove(payload: str, methods: tuple[str, ...]) -> tuple[str, str]:
        path = environment.get(SECRET_FILE)
        if SECRET in methods and path:
            return SECRET, prove_by_secret(read_secret(Path(path)), payload)
        job_secret = environment.get(JOB_SECRET)
        if JOB in methods and job_secret:
            return JOB, prove_by_secret(job_secret.encode(), payload)
        if MUNGE in methods:
            return MUNGE, Munge(environment.get(MUNGE_SOCKET)).encode(payload)
        wanted = " or ".join(methods)
        missing = f"neither {SECRET_FILE} nor {JOB_SECRET} is set"
        raise CredentialError(f"the keeper wants {wanted}; {missing}")

    return prove


def read_secret(path: Path) -> bytes:
    """Return the secret, or the site's key, in a file that only its user may read.

    Raises:
        CredentialError: it cannot be read, or others could.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise CredentialError(f"{path} is open to others; chmod 600 it")
            secret = file.read(1_024).strip()
    except OSError as error:
        raise CredentialError(f"no secret: {error}") from error
    if len(secret) < _SHORTEST_SECRET:
        raise CredentialError(f"{path} holds no secret")
    return secret


def secret_of_job(key: bytes, array: int, uid: int) -> bytes:
    """Return the secret that only the processes of this user's trainer know.

    ``slurm_plugin/job_secret.c`` makes the same of the site's key, as root on the node.
    """
    return prove_by_secret(key, f"bftrainer {array} {uid}").encode()


def prove_by_secret(secret: bytes, payload: str) -> str:
    """Return the proof (hex) that its maker knows the secret."""
    return hmac.new(secret, payload.encode(), hashlib.sha256).hexdigest()


def check_secret(secret: bytes, payload: str, proof: str) -> None:
    """Check a proof by secret.

    Raises:
        CredentialError: it was not made for this payload with this secret.
    """
    if not hmac.compare_digest(prove_by_secret(secret, payload).encode(), proof.encode()):
        raise CredentialError("the secret is another one")


@dataclass(frozen=True, slots=True)
class Munge:
    """MUNGE, as libmunge speaks it; ``socket`` None: munged's usual one."""

    socket: str | None = None
    _library: ctypes.CDLL = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_library", _load())

    def encode(self, payload: str) -> str:
        """Return a credential of this process's user for a payload.

        Raises:
            CredentialError: munged does not make one.
        """
        context = self._context()
        credential = ctypes.c_void_p()
        text = payload.encode()
        try:
            self._check(
                context,
                self._library.munge_encode(ctypes.byref(credential), context, text, len(text)),
            )
            return ctypes.string_at(credential).decode("ascii")
        finally:
            _free(credential)
            self._library.munge_ctx_destroy(context)

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
                self._library.munge_decode(
                    credential.encode(),
                    context,
                    *(ctypes.byref(payload), ctypes.byref(length), ctypes.byref(uid)),
                    None,
                ),
            )
            return ctypes.string_at(payload, length.value).decode("utf-8", "replace"), uid.value
        finally:
            _free(payload)  # given also with a credential that is expired or replayed
            self._library.munge_ctx_destroy(context)

    def _context(self) -> ctypes.c_void_p:
        context = ctypes.c_void_p(self._library.munge_ctx_create())
        if not context:
            raise CredentialError("libmunge is out of memory")
        if self.socket is not None:
            status = self._library.munge_ctx_set(
                context, ctypes.c_int(_OPTION_SOCKET), ctypes.c_char_p(os.fsencode(self.socket))
            )
            self._check(context, status)
        return context

    def _check(self, context: ctypes.c_void_p, status: int) -> None:
        if status != 0:
            why = self._library.munge_ctx_strerror(context) or self._library.munge_strerror(status)
            raise CredentialError(f"munge: {why.decode('utf-8', 'replace')}")


def _load() -> ctypes.CDLL:
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
