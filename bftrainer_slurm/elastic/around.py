"""Puts functions of ours around those of torch and frameworks. Standard library only."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any


def around(owner: Any, name: str, ours: Callable[..., Any]) -> None:
    """Let who calls ``owner.name`` call ``ours``, whose first argument is what was there.

    Raises:
        AttributeError: there is nothing of this name.
    """
    inner = getattr(owner, name)

    @wraps(inner)
    def outer(*given: Any, **named: Any) -> Any:
        return ours(inner, *given, **named)

    setattr(owner, name, outer)
