"""MUNGE, through libmunge: with it people prove who they are when they ask for the status."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache

from bftrainer_slurm.keeper.credentials import CredentialError

_OPTION_SOCKET = 8  # munge.h, MUNGE_OPT_SOCKET


@dataclass(frozen=True, slots=True)
class Munge:
    """``socket`` is where munged listens; None: at its usual place."""

    socket: str | None = None

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
            socket = ctypes.c_char_p(os.fsencode(self.socket))
            option = ctypes.c_int(_OPTION_SOCKET)
            self._check(context, _libmunge().munge_ctx_set(context, option, socket))
        return context

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
