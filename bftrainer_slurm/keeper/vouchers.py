"""The ways in which the keeper checks whose process speaks: a class each.

Checking a MUNGE credential asks munged, so it is done in a thread; nothing here knows groups.
"""

from __future__ import annotations

import asyncio
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
    check_secret,
    prove_by_secret,
    secret_of_job,
)


class NotAdmittedError(Exception):
    """A proof that is not good. ``kind`` is counted; ``retry``: it may be good later."""

    def __init__(self, kind: str, why: str, retry: bool = False) -> None:
        super().__init__(why)
        self.kind = kind
        self.retry = retry


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

    def known_owner(self) -> Owner:
        """Return the owner. Raises NotAdmittedError."""
        if self.owner is None:
            raise NotAdmittedError("owner_unknown", "whose trainer this is, is not known yet", True)
        return self.owner


class Voucher(Protocol):
    """One way. ``one_user``: whoever can prove anything is the only user."""

    @property
    def method(self) -> str:
        """Its name in a challenge."""

    @property
    def one_user(self) -> bool:
        """Whether all trainers are the same user's."""

    async def check(self, proof: str, claim: Claim) -> None:
        """Check a member's proof. Raises NotAdmittedError."""

    def answer(self, claim: Claim) -> str:
        """Return the keeper's own proof of a text to a member; empty where there is none."""


class _BySecret(ABC):
    """Both sides know a secret, and prove it to each other."""

    __slots__ = ()

    async def check(self, proof: str, claim: Claim) -> None:
        """Check that its maker knows the secret. Raises NotAdmittedError."""
        try:
            check_secret(self._secret(claim), claim.text, proof)
        except CredentialError as error:
            raise NotAdmittedError("bad_proof", str(error)) from error

    def answer(self, claim: Claim) -> str:
        """Return the keeper's own proof."""
        return prove_by_secret(self._secret(claim), claim.text)

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
        return secret_of_job(self.key, claim.array, claim.known_owner().uid)


@dataclass(frozen=True, slots=True)
class ByMunge:
    """MUNGE says which user a process has. ``socket`` None: munged's usual one."""

    socket: str | None = None
    method: str = field(default=MUNGE, init=False)
    one_user: bool = field(default=False, init=False)
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="munge")
    )

    async def check(self, proof: str, claim: Claim) -> None:
        """Check that a process of the owner made the credential. Raises NotAdmittedError."""
        uid = await self.who(proof, claim.text)
        if uid != claim.known_owner().uid:
            raise NotAdmittedError("not_owner", "this trainer is somebody else's")

    def answer(self, claim: Claim) -> str:
        """Return nothing: MUNGE vouches for users, and nobody knows the keeper's."""
        return ""

    async def who(self, proof: str, text: str) -> int:
        """Return the user id of who made a credential for this text. Raises NotAdmittedError."""
        loop = asyncio.get_running_loop()
        try:
            said, uid = await loop.run_in_executor(self._threads, self._decode, proof)
        except CredentialError as error:
            raise NotAdmittedError("bad_proof", str(error), retry=True) from error
        if said != text:
            raise NotAdmittedError("bad_proof", "the credential is for something else")
        return uid

    def _decode(self, proof: str) -> tuple[str, int]:
        return Munge(self.socket).decode(proof)
