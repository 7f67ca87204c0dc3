"""The entry point that every torchrun loads, and whether it uses our rendezvous in this element.

Cheap and harmless outside an element: what does the work is in ``agent``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from bftrainer_slurm.elastic.rendezvous.apart import warn_if_apart

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous.api import RendezvousHandler, RendezvousParameters

BACKEND = "bftrainer"

# What makes torchrun fork its workers from a process that has imported torch already.
_WARM = {
    "PET_RUN_PATH": "1",
    "PET_START_METHOD": "forkserver",
    "PET_MONITOR_INTERVAL": "0.02",
    "PET_RDZV_ENDPOINT": BACKEND,  # not used; without one torchrun warns of what nobody has set
}
# A command line that decides for itself how workers are started, or where they meet.
_OWN_WAY = ("--rdzv-b", "--standalone", "--no-python", "--start-m")


def handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return what makes our rendezvous; torch calls it as torchrun is imported.

    That is before the command line is read, so this is where an element's torchrun is told to
    start warm workers.

    Raises:
        SystemExit: the element's torchrun would train alone.
    """
    if "BFTRAINER_ELEMENT" in os.environ:
        choose(os.environ, sys.argv[1:])
        if is_torchrun(sys.orig_argv) and trains_alone(os.environ, sys.argv[1:]):
            _end(
                "torchrun's own rendezvous c10d needs --rdzv-endpoint=HOST:PORT, else each node "
                "trains alone; without rendezvous flags BFTrainer's is used"
            )
        warn_if_apart(os.environ, sys.argv)
    return _create


def choose(environment: MutableMapping[str, str], arguments: Sequence[str]) -> None:
    """Set or unset torchrun's variables for warm workers in an element's environment."""
    if _is_ours(environment, arguments) and why_not() is None:
        for name, value in _WARM.items():
            environment.setdefault(name, value)
        return
    # Stock workers are programs of their own; run_path would take their folder from sys.path.
    for name, value in _WARM.items():
        if environment.get(name) == value:
            del environment[name]


def _is_ours(environment: MutableMapping[str, str], arguments: Sequence[str]) -> bool:
    """Whether torchrun will use our rendezvous; if in doubt, no.

    The script's own options are looked at as well: telling them apart needs torchrun's parser,
    and a script that is taken for one with an own way only starts its workers cold.
    """
    words = [word.replace("_", "-") for word in arguments]
    own_way = any(word.startswith(_OWN_WAY) for word in words if not word.endswith(f"={BACKEND}"))
    return environment.get("PET_RDZV_BACKEND") == BACKEND and not own_way


def is_torchrun(command: Sequence[str]) -> bool:
    """Whether this command line is torchrun's: a script may import torchrun too."""
    module = "torch.distributed.run" in command[:4]
    return module or any(Path(word).name == "torchrun" for word in command[:2])


def trains_alone(environment: Mapping[str, str], arguments: Sequence[str]) -> bool:
    """Whether torchrun was told to use its c10d, and not where its store is: on each node, then."""
    words = [word.replace("_", "-") for word in arguments]
    if any(word.startswith(("--rdzv-e", "--standalone")) for word in words):
        return False
    named = environment.get("PET_RDZV_BACKEND", "")
    for word, following in zip(words, [*arguments[1:], ""], strict=True):
        if word.startswith("--rdzv-b"):
            named = word.partition("=")[2] or following
    return named == "c10d" and not environment.get("PET_RDZV_ENDPOINT")


def why_not() -> str | None:
    """Return why our rendezvous cannot work with this Python and torch; None: it can."""
    try:
        import bftrainer_slurm.elastic.rendezvous.agent  # noqa: F401
    except Exception as error:  # an old one: whatever it says
        return repr(error)
    return None


def _create(parameters: RendezvousParameters) -> RendezvousHandler:
    reason = why_not()
    if reason is not None:
        _end(f"torchrun's Python cannot load the rendezvous, install torch 2.6 or later: {reason}")
    from bftrainer_slurm.elastic.rendezvous.agent import AgentRendezvous

    return AgentRendezvous(parameters, os.environ)


def _end(why: str) -> NoReturn:
    print(f"bftrainer: {why}", file=sys.stderr)
    raise SystemExit(2)
