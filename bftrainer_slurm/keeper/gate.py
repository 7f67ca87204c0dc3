"""Who may join which trainer: challenges, the owners that the controller named, and proofs.

How a proof is checked is the voucher's business; nothing here knows groups.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from bftrainer_slurm.keeper.credentials import MAX_PROOF
from bftrainer_slurm.keeper.disclosure import STATUS_PAYLOAD
from bftrainer_slurm.keeper.messages import Challenge, Hello, payload
from bftrainer_slurm.keeper.vouchers import ByMunge, Claim, NotAdmittedError, Owner, Voucher

REMEMBERED_OWNERS = 20_000


@dataclass(slots=True)
class Gate:
    """``voucher`` is how members prove whose they are."""

    voucher: Voucher
    owners: OrderedDict[int, Owner] = field(default_factory=OrderedDict)
    _doors: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def challenge(self) -> Challenge:
        """Return a new challenge, good for one connection."""
        return Challenge(os.urandom(16).hex(), self.voucher.method)

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
        return -1 if owner is None or self.voucher.one_user else owner.uid

    async def admit(self, challenge: Challenge, hello: Hello, address: str) -> bytes:
        """Check that the member may join the trainer that it names; return the session's key.

        Of those at one ``address`` one is checked at a time: many of them keep no other out.

        Raises:
            NotAdmittedError: it may not.
        """
        if len(hello.proof) > MAX_PROOF or not hello.proof.isascii():
            raise NotAdmittedError("bad_proof", f"prove it by {challenge.method}")
        array = hello.identity.array
        claim = Claim(payload(challenge.nonce, hello), array, self.owners.get(array))
        async with self._doors.setdefault(address, asyncio.Lock()):
            return await self.voucher.check(hello.proof, claim)

    async def reader(self, method: str, proof: str) -> int:
        """Return the user id of somebody who proves who they are, to see more of the status.

        Raises:
            NotAdmittedError: they do not.
        """
        if not isinstance(self.voucher, ByMunge) or method != self.voucher.method:
            raise NotAdmittedError("bad_proof", "prove it by munge, or have the token")
        return await self.voucher.who(proof, STATUS_PAYLOAD)
