"""Files that a command writes after long work: checked before it, and errors without traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile

from bftrainer_slurm.cli.common import fail, say_error


def check_file(option: str, path: Path | None, reads: Path | None = None) -> None:
    """End the command if it cannot write this file, or also ``reads`` it; leave its content."""
    if path is None:
        return
    try:
        is_new = not path.exists()
        if reads is not None and not is_new and reads.exists() and path.samefile(reads):
            fail(f"{option} {path}: this is the file to read; name another file")
        if is_new or path.is_file() or path.is_dir():  # opening a pipe would end its reader
            path.open("ab").close()
        if is_new:
            path.unlink()
    except OSError as error:
        fail(f"{_message(option, path, error)}; name a file that you may write")


def check_folder(option: str, folder: Path | None) -> None:
    """End the command if it cannot write into this folder; make the folder if necessary."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        fail(f"{_message(option, folder, error)}; name a folder that you may write")


def write_output(option: str, path: Path | None, write: Callable[[Path], object]) -> bool:
    """Write a file or folder if one is named; after an error print a line and return False."""
    if path is None:
        return True
    try:
        write(path)
    except OSError as error:
        say_error(f"{_message(option, path, error)}; it was not written")
        return False
    return True


def _message(option: str, path: Path, error: OSError) -> str:
    return f"{option} {path}: {error.strerror or error}"
