"""The ways in which the keeper checks whose process speaks: a class each.

Checking a MUNGE credential asks munged, so it is done in a thread; nothing here knows groups.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from bftrainer_slurm.keeper.credentials import (
    JOB,
    MUNGE,
    SECRET,
    CredentialError,
    Munge,
    check_munge,
    check_secret,
    secret_of_job,
    session_key,
)

_OWNER_UNKNOWN = "whose trainer this is, is not known yet"


class NotAdmittedError(Exception):
    """A proof that is not good. ``kind`` is counted; ``retry``: it may be good later.

    ``key`` seals the refusal, where the proof has one: what anybody can say is final for nobody.
    """

    def __init__(self, kind: str, why: str, retry: bool = False, key: bytes = b"") -> None:
        super().__init__(why)
        self.kind = kind
        self.retry = retry
        self.key = key


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose trainer it is, and how many nodes the plan gives it now (0: not known)."""

    uid: int
    want: int


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member wants to prove: ``text``, as a process of the owner of a trainer."""

    text: str
    array: int
    owner: Owner | None  # None: not known yet


class Voucher(Protocol):
    """One way. ``one_user``: whoever can prove anything is the only user."""

    @property
    def method(self) -> str:
        """Its name in a challenge."""

    @property
    def one_user(self) -> bool:
        """Whether all trainers are the same user's."""

    async def check(self, proof: str, claim: Claim) -> bytes:
        """Check a member's proof; return the session's key. Raises NotAdmittedError."""


class _BySecret(ABC):
    """Both sides know a secret."""

    __slots__ = ()

    async def check(self, proof: str, claim: Claim) -> bytes:
        """Check that its maker knows the secret. Raises NotAdmittedError."""
        secret = self._secret(claim)
        try:
            check_secret(secret, claim.text, proof)
        except CredentialError as error:
            raise NotAdmittedError("bad_proof", str(error)) from error
        return session_key(secret, claim.text)

    @abstractmethod
    def _secret(self, claim: Claim) -> bytes:
        """Return the secret. Raises NotAdmittedError."""


@dataclass(frozen=True, slots=True)
class OneUser(_BySecret):
    """Personal mode: a secret that only the user can read."""

    secret: bytes
    method: str = field(default=SECRET, init=False)
    one_user: bool = field(default=True, init=False)

    def _secret(self, claim: Claim) -> bytes:
        return self.secret


@dataclass(frozen=True, slots=True)
class SiteKey(_BySecret):
    """Without MUNGE: the key of which root on the nodes makes each trainer's secret."""

    key: bytes
    method: str = field(default=JOB, init=False)
    one_user: bool = field(default=False, init=False)

    def _secret(self, claim: Claim) -> bytes:
        if claim.owner is None:
            raise NotAdmittedError("owner_unknown", _OWNER_UNKNOWN, True)
        return secret_of_job(self.key, claim.array, claim.owner.uid)


@dataclass(frozen=True, slots=True)
class ByMunge:
    """MUNGE says which user a process has. ``socket`` None: munged's usual one."""

    socket: str | None = None
    method: str = field(default=MUNGE, init=False)
    one_user: bool = field(default=False, init=False)
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="munge")
    )

    async def check(self, proof: str, claim: Claim) -> bytes:
        """Check that a process of the owner made the credential. Raises NotAdmittedError."""
        said, uid = await self._opened(proof)
        try:
            key = check_munge(said, claim.text)
        except CredentialError as error:
            raise NotAdmittedError("bad_proof", str(error)) from error
        if claim.owner is None:
            raise NotAdmittedError("owner_unknown", _OWNER_UNKNOWN, True, key)
        if uid != claim.owner.uid:
            raise NotAdmittedError("not_owner", "this trainer is somebody else's", False, key)
        return key

    async def who(self, proof: str, text: str) -> int:
        """Return the user id of who made a credential for this text. Raises NotAdmittedError."""
        said, uid = await self._opened(proof)
        if said != text:
            raise NotAdmittedError("bad_proof", "the credential is for something else")
        return uid

    async def _opened(self, proof: str) -> tuple[str, int]:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._decode, proof)
        except CredentialError as error:
            why = f"{error}; this keeper runs as user {os.getuid()}"
            raise NotAdmittedError("bad_proof", why, retry=True) from error

    def _decode(self, proof: str) -> tuple[str, int]:
        return Munge(self.socket).decode(proof)
