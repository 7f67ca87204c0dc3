"""Puts functions of ours around those of torch and frameworks. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from functools import wraps
from inspect import signature
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


def before(owner: Any, name: str, do: Callable[[MutableMapping[str, Any]], object]) -> None:
    """Call ``do`` before each call of ``owner.name``, with its arguments by name, to change them.

    Raises:
        AttributeError: there is nothing of this name.
    """

    def do_and_call(inner: Callable[..., Any], *given: Any, **named: Any) -> Any:
        bound = signature(inner).bind(*given, **named)
        bound.apply_defaults()
        do(bound.arguments)
        return inner(*bound.args, **bound.kwargs)

    around(owner, name, do_and_call)
