"""Who may see what on the page, by keys. Pure, except for the key's file.

Everybody who reaches the page sees what squeue shows to everybody. A user's key shows all about
that user's trainers; the keeper gives it to their owner only, with the rest of the status. The key
in the state folder, or in the folder that two hosts share, shows everything.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bftrainer_slurm.keeper import disclosure
from bftrainer_slurm.keeper.home import own_text

_KEY_FILE = "page.key"


def secret_of(folder: Path) -> str:
    """Return the key that shows everything; make one if there is none.

    Raises:
        OSError, StateError: it cannot be read or made.
    """
    return own_text(folder / _KEY_FILE)


def key_of(user: str, secret: str) -> str:
    """Return a user's key."""
    return f"{user}.{hmac.new(secret.encode(), user.encode(), hashlib.sha256).hexdigest()}"


def link_of(address: str, array: int, user: str, secret: str) -> str:
    """Return the address where the owner of a trainer sees all of it.

    Browsers do not send what follows the #, so the key gets into no log.
    """
    return f"http://{address}/#trainer={array}&key={quote(key_of(user, secret))}"


@dataclass(frozen=True, slots=True)
class Viewer:
    """A reader of the page: with the key of ``user``, with the one for ``everything``, or without.

    ``private`` is what users may not see about others, in the words of slurm.conf's PrivateData.
    """

    user: str | None = None
    everything: bool = False
    private: frozenset[str] = frozenset()

    def owns(self, user: str) -> bool:
        """Whether they may see all about a user's trainers."""
        return self.everything or (self.user is not None and self.user == user)

    def named(self, user: str) -> bool:
        """Whether they may see a user's trainers at all."""
        return self.owns(user) or "jobs" not in self.private

    def counted(self, user: str) -> bool:
        """Whether they may see what a user has used."""
        return self.named(user) and (self.owns(user) or "usage" not in self.private)

    @property
    def tells_nodes_apart(self) -> bool:
        """Whether they may see each node."""
        return self.everything or "nodes" not in self.private

    def shown(self, trainer: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what they may see of a trainer, None if nothing."""
        own, private = self.owns(trainer["user"]), "jobs" in self.private
        return disclosure.shown(trainer, own=own, private=private)

    def trainers(self, known: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the trainers that they may see, with what they may see of each."""
        return [seen for one in known if (seen := self.shown(one)) is not None]


def viewer(authorization: str, secret: str, private: frozenset[str]) -> Viewer:
    """Return the reader by the key that was sent; a wrong key counts as none."""
    _, _, key = authorization.partition(" ")
    said = key.strip().encode()
    if secret and hmac.compare_digest(said, secret.encode()):
        return Viewer(everything=True, private=private)
    user = key.strip().rpartition(".")[0]
    if user and secret and hmac.compare_digest(said, key_of(user, secret).encode()):
        return Viewer(user, private=private)
    return Viewer(private=private)
