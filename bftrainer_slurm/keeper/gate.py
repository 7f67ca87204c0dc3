"""Who may join which trainer: challenges, the owners that the controller named, and proofs.

Checking a MUNGE credential asks munged, so it is done in a thread; nothing here knows groups.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bftrainer_slurm.keeper.credentials import (
    MAX_PROOF,
    MUNGE,
    SECRET,
    CredentialError,
    Munge,
    check_secret,
    prove_by_secret,
)
from bftrainer_slurm.keeper.disclosure import STATUS_PAYLOAD
from bftrainer_slurm.keeper.messages import Challenge, Hello, keeper_payload, payload

REMEMBERED_OWNERS = 20_000


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


@dataclass(slots=True)
class Gate:
    """``secret``: the one of the only user (personal mode); None: MUNGE vouches for users."""

    secret: bytes | None
    munge_socket: str | None = None
    owners: OrderedDict[int, Owner] = field(default_factory=OrderedDict)
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="munge")
    )

    def challenge(self) -> Challenge:
        """Return a new challenge, good for one connection."""
        return Challenge(os.urandom(16).hex(), (MUNGE if self.secret is None else SECRET,))

    def own(self, array: int, owner: Owner) -> None:
        """Remember whose trainer this is."""
        self.owners[array] = owner
        self.owners.move_to_end(array)
        if len(self.owners) > REMEMBERED_OWNERS:
            self.owners.popitem(last=False)

    def want(self, array: int) -> int:
        """Return how many nodes the plan gives a trainer; 0: not known."""
        owner = self.owners.get(array)
        return 0 if owner is None else owner.want

    def user(self, array: int) -> int:
        """Return the id of the trainer's owner; -1 where there is but one user, or not known."""
        owner = self.owners.get(array)
        return -1 if owner is None or self.secret is not None else owner.uid

    def answer(self, challenge: Challenge, hello: Hello) -> str:
        """Return the keeper's own proof; empty where MUNGE vouches for users."""
        if self.secret is None:
            return ""
        return prove_by_secret(self.secret, keeper_payload(challenge.nonce, hello.nonce))

    async def admit(self, challenge: Challenge, hello: Hello) -> None:
        """Check that the member may join the trainer that it names.

        Raises:
            NotAdmittedError: it may not.
        """
        wanted = payload(challenge.nonce, hello.identity)
        good_text = len(hello.proof) <= MAX_PROOF and hello.proof.isascii()
        if hello.method not in challenge.methods or not good_text:
            raise NotAdmittedError("bad_proof", f"prove it by {' or '.join(challenge.methods)}")
        if self.secret is not None:
            try:
                check_secret(self.secret, wanted, hello.proof)
            except CredentialError as error:
                raise NotAdmittedError("bad_proof", str(error)) from error
            return
        loop = asyncio.get_running_loop()
        try:
            said, uid = await loop.run_in_executor(self._threads, self._decode, hello.proof)
        except CredentialError as error:
            raise NotAdmittedError("bad_proof", str(error), retry=True) from error
        if said != wanted:
            raise NotAdmittedError("bad_proof", "the credential is for something else")
        owner = self.owners.get(hello.identity.array)
        if owner is None:
            raise NotAdmittedError("owner_unknown", "whose trainer this is, is not known yet", True)
        if uid != owner.uid:
            raise NotAdmittedError("not_owner", "this trainer is somebody else's")

    async def reader(self, method: str, proof: str) -> int:
        """Return the user id of somebody who proves who they are, to see more of the status.

        Raises:
            NotAdmittedError: they do not.
        """
        if self.secret is not None or method != MUNGE:
            raise NotAdmittedError("bad_proof", "prove it by munge, or have the token")
        loop = asyncio.get_running_loop()
        try:
            said, uid = await loop.run_in_executor(self._threads, self._decode, proof)
        except CredentialError as error:
            raise NotAdmittedError("bad_proof", str(error)) from error
        if said != STATUS_PAYLOAD:
            raise NotAdmittedError("bad_proof", "the credential is for something else")
        return uid

    def _decode(self, proof: str) -> tuple[str, int]:
        return Munge(self.munge_socket).decode(proof)
