"""Fuzzing: what parses texts of users and strangers, fed with bytes that nobody would send.

What is fuzzed is in ``catalogue``, what each target promises in ``submissions``, ``strangers`` and
``conversation``, how it is fuzzed in ``campaign``. ``scripts/run fuzz`` is the command; the inputs
that are kept are in ``corpus``, and the tests here run them.
"""

from __future__ import annotations


def promise(holds: bool, what: str) -> None:
    """Raise AssertionError where the code under test takes an input in a way that it must not."""
    if not holds:
        raise AssertionError(what)
