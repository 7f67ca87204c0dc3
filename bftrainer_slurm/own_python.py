"""How a process of ours starts another one: with this Python, and nothing from elsewhere."""

from __future__ import annotations

import sys


def own_python(*what: str) -> tuple[str, ...]:
    """Return the command that runs ``what`` (``-m MODULE``) in this process's own Python.

    It imports nothing from the folder in which it starts. Where this Python ignores its user's
    environment (``-I``, as in packages), so does that one; elsewhere PYTHONPATH may be the way to
    this package. A warning of a library is never an error, whatever PYTHONWARNINGS says.
    """
    return (sys.executable, "-I" if sys.flags.isolated else "-P", "-Wignore", *what)
