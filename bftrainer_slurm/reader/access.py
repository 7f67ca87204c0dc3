"""Who may see what on the page, by keys. Pure.

Everybody who reaches the page sees what squeue shows to everybody. A user's key shows all about
that user's trainers, the key of ``controller.publish.keys`` everything.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bftrainer_slurm.controller.publish.keys import key_of
from bftrainer_slurm.keeper import disclosure


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
