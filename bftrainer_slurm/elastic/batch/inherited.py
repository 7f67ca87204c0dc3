"""What a process has from its parent beside environment and folder: limits, umask, input."""

from __future__ import annotations

import base64
import fcntl
import os
import resource
import select
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

INPUT_S = 0.5  # who writes to an srun's input has so long to be done, as with a shell's <<EOF
_LIMITS = {name: number for name, number in vars(resource).items() if name.startswith("RLIMIT_")}
_NONBLOCK = 2  # SPLICE_F_NONBLOCK of tee(2)


@dataclass(frozen=True, slots=True)
class Inherited:
    """``limits`` are soft ones that differ from this process's own; ``stdin`` is in base64."""

    limits: Mapping[str, int]
    umask: int
    stdin: str

    def take_limits(self) -> dict[int, tuple[int, int]]:
        """Make the limits this process's own, as far as it may; return those it had."""
        before: dict[int, tuple[int, int]] = {}
        for name, soft in self.limits.items():
            if (number := _LIMITS.get(name)) is None:
                continue
            before[number] = _, hard = resource.getrlimit(number)
            if hard != resource.RLIM_INFINITY:
                soft = hard if soft == resource.RLIM_INFINITY else min(soft, hard)
            resource.setrlimit(number, (soft, hard))
        return before

    def open_stdin(self) -> int:
        """Return a file to read the input from."""
        file = os.memfd_create("stdin")
        with os.fdopen(os.dup(file), "wb") as writer:
            writer.write(base64.b64decode(self.stdin))
        os.lseek(file, 0, os.SEEK_SET)
        return file


def inherited_by(pid: int, most: int) -> Inherited:
    """Return what a process of this user has.

    Raises:
        OSError, ValueError: it has ended; it has more than ``most`` bytes of input.
    """
    limits = {
        name: resource.prlimit(pid, number)[0]
        for name, number in _LIMITS.items()
        if resource.prlimit(pid, number)[0] != resource.getrlimit(number)[0]
    }
    lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    umask = next((line.split()[1] for line in lines if line.startswith("Umask:")), "22")
    return Inherited(limits, int(umask, 8), base64.b64encode(_input_of(pid, most)).decode())


def _input_of(pid: int, most: int) -> bytes:
    """Return what a process can still read from its input, and leave it there."""
    path = Path(f"/proc/{pid}/fd/0")
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # it has none
        return b""
    if stat.S_ISREG(mode):
        return _bounded(_rest_of_file(pid, path, most), most)
    if stat.S_ISFIFO(mode):
        return _bounded(_copy_of_pipe(path), most)
    return b""


def _bounded(text: bytes, most: int) -> bytes:
    if len(text) > most:
        raise ValueError("its input is too long")
    return text


def _rest_of_file(pid: int, path: Path, most: int) -> bytes:
    info = Path(f"/proc/{pid}/fdinfo/0").read_text()
    at = next(int(line.split()[1]) for line in info.splitlines() if line.startswith("pos:"))
    with path.open("rb") as file:
        file.seek(at)
        return file.read(most + 1)


def _copy_of_pipe(path: Path) -> bytes:
    """Return a pipe's bytes if nobody can add any; else they were not meant for a step."""
    source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        poll = select.poll()
        poll.register(source, 0)  # only that it is closed
        if not poll.poll(INPUT_S * 1000):
            return b""
        size = fcntl.fcntl(source, fcntl.F_GETPIPE_SZ)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, size)
        import ctypes  # it is needed here alone, and slow to import

        tee = ctypes.CDLL(None, use_errno=True).tee
        tee.restype = ctypes.c_ssize_t
        if tee(source, writer, ctypes.c_size_t(size), _NONBLOCK) <= 0:
            return b""
        return os.read(reader, size)
    finally:
        for file in (source, reader, writer):
            os.close(file)
