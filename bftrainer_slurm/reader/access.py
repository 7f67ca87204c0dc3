"""Who may see what on the page, by keys. Pure.

Without a key a reader sees what squeue shows to everybody. A user's key shows all about that
user's trainers. The key of ``controller.publish.keys`` shows everything.
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
    """A reader of the page: with the key of ``user``, with the key for ``everything``, or neither.

    ``private`` is what users may not see about others, in the words of slurm.conf's PrivateData.
    """

    user: str | None = None
    everything: bool = False
    private: frozenset[str] = frozenset()

    def owns(self, user: str) -> bool:
        """Return whether the viewer may see all about a user's trainers."""
        return self.everything or (self.user is not None and self.user == user)

    def may_see_trainers(self, user: str) -> bool:
        """Return whether the viewer may see a user's trainers at all."""
        return self.owns(user) or "jobs" not in self.private

    def may_see_usage(self, user: str) -> bool:
        """Return whether the viewer may see how many node-hours a user has used."""
        return self.may_see_trainers(user) and (self.owns(user) or "usage" not in self.private)

    @property
    def may_see_nodes(self) -> bool:
        """Whether the viewer may see each node."""
        return self.everything or "nodes" not in self.private

    def visible(self, trainer: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what the viewer may see of a trainer, None if nothing."""
        own, private = self.owns(trainer["user"]), "jobs" in self.private
        return disclosure.shown(trainer, own=own, private=private)

    def visible_trainers(self, known: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return what the viewer may see of these trainers."""
        return [seen for one in known if (seen := self.visible(one)) is not None]


def authenticate(authorization: str, secret: str, private: frozenset[str]) -> Viewer:
    """Return whose key a request has; a wrong key counts as none."""
    _, _, key = authorization.partition(" ")
    said = key.strip().encode()
    if secret and hmac.compare_digest(said, secret.encode()):
        return Viewer(everything=True, private=private)
    user = key.strip().rpartition(".")[0]
    if user and secret and hmac.compare_digest(said, key_of(user, secret).encode()):
        return Viewer(user, private=private)
    return Viewer(private=private)
