"""Who may join which trainer: challenges, the owners that the controller named, and proofs.

A proof is checked in one of three ways; each has a class. Checking a MUNGE credential asks munged,
so it is done in a thread. With MUNGE, a trainer's processes in a container prove themselves by a
secret, which the plugin on their node was given for a credential.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from bftrainer_slurm.keeper.credentials import (
    JOB,
    MAX_PROOF,
    MUNGE,
    SECRET,
    CredentialError,
    Munge,
    check_munge,
    covered,
    is_secrets_proof,
    prove_by_secret,
    secret_of_job,
    secret_payload,
)
from bftrainer_slurm.keeper.disclosure import STATUS_PAYLOAD
from bftrainer_slurm.keeper.messages import Challenge, Hello, payload
from bftrainer_slurm.keeper.protocol import ProtocolError
from bftrainer_slurm.keeper.trainers import Trainers

_OWNER_UNKNOWN = "whose trainer this is, is not known yet"


class NotAdmittedError(ProtocolError):
    """Somebody is not let in; ``retry``: a later try may work.

    ``key`` seals the refusal, if the proof has one: members take only a sealed refusal as final.
    """

    def __init__(self, kind: str, why: str, retry: bool = False, key: bytes = b"") -> None:
        super().__init__(why, kind)
        self.retry = retry
        self.key = key


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member has to prove: that a process of the trainer's owner sent ``text``."""

    text: str
    array: int
    uid: int | None  # its owner; None: not known yet


@dataclass(frozen=True)
class OneUser:
    """Personal mode: a secret that only the user can read. Only this user can prove anything."""

    secret: bytes
    method = SECRET

    async def check(self, proof: str, claim: Claim) -> bytes:
        """Check a member's proof; return the session's key. Raises NotAdmittedError."""
        return _check_secret(self.secret, proof, claim)


@dataclass(frozen=True)
class SiteKey:
    """Without MUNGE: a key from which root on the nodes makes each trainer's secret."""

    key: bytes
    method = JOB

    async def check(self, proof: str, claim: Claim) -> bytes:
        """Check a member's proof; return the session's key. Raises NotAdmittedError."""
        return _check_job_secret(self.key, proof, claim)


def _check_job_secret(key: bytes, proof: str, claim: Claim) -> bytes:
    if claim.uid is None:
        raise NotAdmittedError("owner_unknown", _OWNER_UNKNOWN, True)
    return _check_secret(secret_of_job(key, claim.array, claim.uid), proof, claim)


def _check_secret(secret: bytes, proof: str, claim: Claim) -> bytes:
    own = prove_by_secret(secret, claim.text)
    if not hmac.compare_digest(own.text.encode(), proof.encode()):
        raise NotAdmittedError("bad_proof", "the secret is wrong")
    return own.key


@dataclass(frozen=True)
class ByMunge:
    """MUNGE says which user a process runs as. ``socket`` None: munged's usual one.

    From the ``key``, which only the keeper has, it makes each trainer's secret.
    """

    socket: str | None = None
    key: bytes = field(default_factory=lambda: os.urandom(32))
    method = MUNGE
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="munge")
    )

    async def check(self, proof: str, claim: Claim) -> bytes:
        """Check a member's proof; return the session's key. Raises NotAdmittedError."""
        if is_secrets_proof(proof):
            return _check_job_secret(self.key, proof, claim)
        key, uid = await self._key_in(proof, claim.text)
        if claim.uid is None:
            raise NotAdmittedError("owner_unknown", _OWNER_UNKNOWN, True, key)
        if uid != claim.uid:
            raise NotAdmittedError("not_owner", "this trainer is somebody else's", False, key)
        return key

    async def secret(self, proof: str, array: int) -> bytes:
        """Return the secret that a credential's maker has for this trainer, as only they read it.

        It opens the trainer only if they own it: that need not be known yet.

        Raises:
            NotAdmittedError: it is no good credential for this.
        """
        key, uid = await self._key_in(proof, secret_payload(array))
        return covered(secret_of_job(self.key, array, uid), key)

    async def _key_in(self, proof: str, text: str) -> tuple[bytes, int]:
        """Return the key in a credential for ``text``, and who made it. Raises NotAdmittedError."""
        said, uid = await self.opened(proof)
        try:
            return check_munge(said, text), uid
        except CredentialError as error:
            raise NotAdmittedError("bad_proof", str(error)) from error

    async def opened(self, proof: str) -> tuple[str, int]:
        """Return the text in a credential, and who made it (user id). Raises NotAdmittedError."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                self._threads, lambda: Munge(self.socket).decode(proof)
            )
        except CredentialError as error:
            why = f"{error}; this keeper runs as user {os.getuid()}"
            raise NotAdmittedError("bad_proof", why, retry=True) from error


Voucher = OneUser | SiteKey | ByMunge


@dataclass(slots=True)
class Gate:
    """Who may join which trainer; ``voucher`` checks the members' proofs."""

    voucher: Voucher
    trainers: Trainers = field(default_factory=Trainers)
    _doors: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def challenge(self) -> Challenge:
        """Return a new challenge, good for one connection."""
        return Challenge(os.urandom(16).hex(), self.voucher.method)

    def user(self, array: int) -> int:
        """Return the id of the trainer's owner; -1 if it is not known, or for the only user."""
        uid = self.trainers.known(array).uid
        return -1 if uid is None or isinstance(self.voucher, OneUser) else uid

    async def admit(self, challenge: Challenge, hello: Hello, address: str) -> bytes:
        """Check that the member may join the trainer that it names; return the session's key.

        Proofs from one ``address`` are checked one at a time, so that they block no other address.

        Raises:
            NotAdmittedError: it may not.
        """
        if len(hello.proof) > MAX_PROOF or not hello.proof.isascii():
            raise NotAdmittedError("bad_proof", f"prove it by {challenge.method}")
        array = hello.identity.array
        claim = Claim(payload(challenge.nonce, hello), array, self.trainers.known(array).uid)
        async with self._doors.setdefault(address, asyncio.Lock()):
            return await self.voucher.check(hello.proof, claim)

    async def secret(self, array: int, proof: str, address: str) -> bytes:
        """Return the secret of a trainer for who proves who they are, see ``ByMunge.secret``.

        Raises:
            NotAdmittedError: they do not prove it, or this keeper gives no secrets.
        """
        if not isinstance(self.voucher, ByMunge):
            raise NotAdmittedError("bad_proof", "this keeper asks for no credential")
        async with self._doors.setdefault(address, asyncio.Lock()):
            return await self.voucher.secret(proof, array)

    async def reader(self, method: str, proof: str) -> int:
        """Return the user id of somebody who proves who they are, to see more of the status.

        Raises:
            NotAdmittedError: they do not prove it.
        """
        if not isinstance(self.voucher, ByMunge) or method != self.voucher.method:
            raise NotAdmittedError("bad_proof", "prove it by munge, or have the token")
        said, uid = await self.voucher.opened(proof)
        if said != STATUS_PAYLOAD:
            raise NotAdmittedError("bad_proof", "the credential is for something else")
        return uid
