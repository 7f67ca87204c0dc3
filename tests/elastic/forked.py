"""torchruns that are forked from a Python that has imported torch already.

Each import costs four seconds of a core, and there are hundreds of torchruns. They do all else
as programs of their own do; that those work too, the tests of launchers and those on Slurm show.

As a program it is what they are forked from; it ends with the process that started it.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

_BIN = Path(sys.executable).parent


class Torchrun:
    """What ``subprocess.Popen`` is for a program, in a session of its own (``fleet.Process``)."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
    ) -> None:
        self.pid: int = _ask("start", [*arguments], {**environment}, str(folder), str(log))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, as ``Popen`` does; None: it runs."""
        if self.returncode is None:
            self.returncode = _ask("poll", self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return its exit code when it has ended. Raises TimeoutError: not in so many seconds."""
        from scripts.labcluster.waiting import wait_until  # not there where this is a program

        wait_until(lambda: self.poll() is not None, timeout, "a torchrun has not ended")
        assert self.returncode is not None
        return self.returncode


@cache
def _origin() -> IO[str]:
    ours, theirs = socket.socketpair()
    number = theirs.fileno()
    subprocess.Popen(
        [sys.executable, __file__, str(number)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        pass_fds=[number],
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    return ours.makefile("rw", buffering=1)


def _ask(*question: object) -> Any:
    origin = _origin()
    print(json.dumps(question), file=origin)
    answer = origin.readline()
    assert answer, "what torchruns are forked from has ended"
    return json.loads(answer)


def _start(arguments: list[str], environment: dict[str, str], folder: str, log: str) -> None:
    """In the fork, be what starts as torchrun there."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(_BIN / "torchrun"), *arguments]
    sys.orig_argv = [sys.executable, *sys.argv]


def _serve(asked: socket.socket) -> bool:
    """Answer until nobody asks any more; True: this is a torchrun now."""
    with asked, asked.makefile("rw", buffering=1) as questions:
        for line in questions:
            match json.loads(line):
                case ["start", *how]:
                    pid = os.fork()
                    if not pid:
                        _start(*how)
                        return True
                    print(pid, file=questions)
                case ["poll", pid]:
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    code = os.waitstatus_to_exitcode(status) if ended else None
                    print(json.dumps(code), file=questions)
    return False


if __name__ == "__main__":
    sys.path[0] = str(_BIN)  # as torchrun's
    gc.disable()  # it would take a third of the time
    import torch._dynamo
    import torch.distributed.run
    import torch.nn.parallel
    import torch.utils.data

    from bftrainer_slurm.elastic import rendezvous
    from bftrainer_slurm.elastic.rendezvous import agent  # noqa: F401  # and all that it needs

    gc.freeze()
    gc.enable()
    if _serve(socket.socket(fileno=int(sys.argv[1]))):
        rendezvous.handler()  # torch has called it as it was imported, in no element yet
        torch.distributed.run.main()
