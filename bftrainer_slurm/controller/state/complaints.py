"""Nodes on which something went wrong, and for whose elements. Pure.

One user's elements may be the reason themselves, so what happened to several users counts more.
"""

from __future__ import annotations

_SEVERAL = 2  # users


class Complaints:
    """For each node the users whose elements it happened to, and until when it counts (Unix s)."""

    def __init__(self) -> None:
        self._until_s: dict[str, dict[str, float]] = {}

    def add(self, node: str, user: str, until_s: float, now_s: float) -> bool:
        """Note one more; return whether it counts for several users now."""
        counts = {one: end_s for one, end_s in self._until_s.get(node, {}).items() if end_s > now_s}
        self._until_s[node] = {**counts, user: until_s}
        return len(self._until_s[node]) >= _SEVERAL

    def nodes(self, now_s: float) -> list[str]:
        """Return the nodes of which something still counts."""
        return sorted(
            node
            for node, users in self._until_s.items()
            if any(end_s > now_s for end_s in users.values())
        )

    def forget(self, node: str) -> None:
        """Nothing is wrong there any more."""
        self._until_s.pop(node, None)
