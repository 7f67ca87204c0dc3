"""Says once what a change of nodes does to a script that nobody has prepared for it.

That it begins at step 0 again each time, that its batches are those of fewer or more ranks, or that
it empties a file into which it wrote as it trained.

A script that goes on loads an optimizer's state, or opens a file that was written since training
began here. What it reads else may be its data, or a model that it fine-tunes.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer_slurm.elastic import resuming
from bftrainer_slurm.elastic.around import around
from bftrainer_slurm.elastic.log import say

if TYPE_CHECKING:
    from bftrainer_slurm.elastic.memory import Memory

_CLOCKS_S = 1.0  # by so much a file server's clock may be behind
_OFTEN = 2  # the first time there may have been no checkpoint yet
_LINE = (
    "the script has begun at step 0 again after each of two changes of nodes: what it "
    "had trained is lost. Let it save checkpoints, and load the newest one as it starts "
    "(docs/frameworks/index.md)"
)
_OTHER_RANKS = (
    "{} ranks go on where {} had trained: a batch number or an epoch's length in the checkpoint "
    "means other samples now, so that some may be left out{}. Write samples down, in place of "
    "batches, skip these{} (docs/frameworks/ddp.md)"
)
_AND_RATE = (
    ", and a learning rate that counts steps is off its course",
    ", and let the rate follow them",
)
_EMPTIED = (
    "the script has begun {} anew as it started again: what it had written into it before is gone. "
    "Open it with 'a' in place of 'w' (docs/frameworks/index.md)"
)
_NOT_FILES = ("/proc/", "/sys/", "/dev/")
_CODE = (".py", ".pyc", ".so")  # Python writes the second where it first imports, in a step too
_watching = _hooked = False
_loaded_optimizer = False
_newest_file_s = 0.0  # that this process has read: when it was written
_emptied: dict[Path, os.stat_result] = {}  # files that it has emptied, as they were


def watch() -> None:
    """Note what this process's script reads before its first step, and when it saves by torch."""
    global _watching, _hooked
    import torch

    _watching = True
    if not _hooked:  # it is for good
        _hooked = True
        sys.addaudithook(_note)
        os.register_at_fork(after_in_child=_stop)  # what reads data makes no step
    around(torch, "save", _save)
    around(torch.optim.Optimizer, "load_state_dict", _load_optimizer)


def look(memory: Memory, optimizer: object, trained_before: bool, ranks: int) -> None:
    """Look at a process's first optimizer step, whether it has gone on; rank 0 says it."""
    _stop()
    since_s = _trains_since_s(memory)
    goes_on = _loaded_optimizer or _newest_file_s >= since_s
    emptied = [path for path, info in _emptied.items() if info.st_mtime >= since_s]
    before, memory.past.ranks = int(memory.past.ranks), ranks
    if goes_on:
        memory.goes_on()
    other_ranks = goes_on and before not in (0, ranks) and not resuming.counts_samples()
    memory.past.other_ranks = memory.past.other_ranks or other_ranks
    began_again = trained_before and not goes_on and memory.begins_from_start() == _OFTEN
    if os.environ.get("RANK", "0") != "0":
        # Before the first generation nobody can have told.
        if goes_on and before != ranks and (before or memory.past.generation > 1):
            memory.past.told_of_ranks = True  # rank 0 does, and this node may be rank 0 later
        return
    if not memory.past.told_of_files and (emptied := list(filter(_is_shorter, emptied))):
        memory.past.told_of_files = True
        say(_EMPTIED.format(" and ".join(map(str, emptied))))
    if began_again:
        say(_LINE)
    elif other_ranks and not memory.past.told_of_ranks:
        memory.past.told_of_ranks = True
        follows = resuming.RATES in resuming.helping or not has_moved(optimizer)
        rate = ("", "") if follows else _AND_RATE
        say(_OTHER_RANKS.format(ranks, before, *rate))


def goes_on() -> None:
    """Note that this process's script has loaded what was trained, from no file."""
    global _loaded_optimizer
    _loaded_optimizer = True


def _is_shorter(path: Path) -> bool:
    """Return whether an emptied file has less in it now; one that is written whole has not."""
    with suppress(OSError):
        return path.stat().st_size < _emptied[path].st_size
    return False


def has_moved(optimizer: object) -> bool:
    """Return whether its rate is another one than its script has made it with."""
    made_with = getattr(optimizer, "defaults", {}).get("lr")
    return any(
        float(group["lr"]) != float(group.get("initial_lr", made_with))
        for group in getattr(optimizer, "param_groups", ())
        if "lr" in group and made_with is not None
    )


def _trains_since_s(memory: Memory) -> float:
    """Return since when (time.time()) files can be checkpoints: the first step here, if any."""
    since_s = memory.past.trains_since_s
    if not since_s:
        memory.past.trains_since_s = time.time() - _CLOCKS_S
    return since_s or memory.made_s


def _load_optimizer(
    method: Callable[..., Any], optimizer: Any, state_dict: Any, *given: Any, **named: Any
) -> Any:
    """Note a state that comes from training: accelerate loads an empty one to place it."""
    global _loaded_optimizer
    _loaded_optimizer = _loaded_optimizer or bool(state_dict.get("state"))
    return method(optimizer, state_dict, *given, **named)


def _stop() -> None:
    global _watching
    _watching = False


def _note(event: str, given: tuple[Any, ...]) -> None:
    """Note a file that is opened to be read, or emptied; as an audit hook it must never raise."""
    global _newest_file_s
    if not _watching or event != "open":
        return
    with suppress(Exception):
        path, mode, flags = given
        reads = "r" in mode if mode else flags & os.O_ACCMODE == os.O_RDONLY
        empties = bool(flags & os.O_TRUNC)
        file = Path(os.fsdecode(path))  # a descriptor is none
        if (reads or empties) and not str(file).startswith(_NOT_FILES) and file.suffix not in _CODE:
            info = file.stat()
            if stat.S_ISREG(info.st_mode) and empties:
                _emptied.setdefault(file.absolute(), info)
            elif stat.S_ISREG(info.st_mode):
                _newest_file_s = max(_newest_file_s, info.st_mtime)


def _save(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    from bftrainer_slurm.elastic.steps import of_this_process

    saved = function(*given, **named)
    of_this_process().wrote_file()
    return saved
