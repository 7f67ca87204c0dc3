"""Whom the keeper believes: by the controller's secret and each trainer's, and people by MUNGE."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from bftrainer_slurm.keeper.credentials import CONTROLLER, CredentialError, secret_of_job
from bftrainer_slurm.keeper.disclosure import STATUS_PAYLOAD
from bftrainer_slurm.keeper.munge import Munge
from bftrainer_slurm.keeper.protocol import ProtocolError, whole
from bftrainer_slurm.keeper.trainers import Trainers


@dataclass(frozen=True, slots=True)
class Means:
    """What a keeper's proofs are made of. ``key_file`` has the site's key; None: personal mode.

    ``munge_socket`` is where munged listens (None: as usual), by which people prove who they are.
    """

    key_file: Path | None = None
    munge_socket: str | None = None


@dataclass(frozen=True)
class Gate:
    """``token`` is the controller's secret; from ``key`` comes that of each trainer.

    ``one_user``: all trainers are this process's user's (personal mode).
    """

    token: str
    key: bytes
    one_user: bool = False
    munge_socket: str | None = None
    trainers: Trainers = field(default_factory=Trainers)
    _threads: ThreadPoolExecutor = field(  # asking munged takes time
        default_factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="munge")
    )

    def user(self, array: int) -> int:
        """Return the id of the trainer's owner; -1: it is not known."""
        uid = os.getuid() if self.one_user else self.trainers.known(array).uid
        return -1 if uid is None else uid

    def secret(self, who: str) -> bytes:
        """Return the secret of the controller, or of the trainer with this array.

        Raises:
            ProtocolError: it is neither, or whose trainer it is, is not known.
        """
        if who == CONTROLLER:
            return self.token.encode()
        array = whole(who)
        if (uid := self.user(array)) < 0:
            raise ProtocolError(f"whose trainer {array} is, is not known yet", "owner_unknown")
        return secret_of_job(self.key, array, uid)

    async def reader(self, credential: str) -> int:
        """Return the user id of somebody who proves who they are, to see more of the status.

        Raises:
            ProtocolError: they do not prove it.
        """
        loop = asyncio.get_running_loop()
        try:
            said, uid = await loop.run_in_executor(
                self._threads, lambda: Munge(self.munge_socket).decode(credential)
            )
        except CredentialError as error:
            raise ProtocolError(str(error), "bad_proof") from error
        if said != STATUS_PAYLOAD:
            raise ProtocolError("the credential is for something else", "bad_proof")
        return uid
