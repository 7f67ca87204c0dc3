"""Processes beside the job: what they keep open, also on a node without /proc and /dev."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# It ends with 0 if only the one file that it keeps is open.
PROGRAM = """
import ctypes, os, sys
library, bare = sys.argv[1:]
become_helper = ctypes.CDLL(library).process_become_helper
first, kept, last = (os.open("/", os.O_RDONLY) for _ in range(3))
if bare:
    os.chroot(bare)
become_helper(b"helper", (ctypes.c_int * 1)(kept), ctypes.c_size_t(1))

def is_open(file):
    try:
        return bool(os.fstat(file))
    except OSError:
        return False

streams = [is_open(file) for file in range(3)]
good = not is_open(first) and is_open(kept) and not is_open(last)
os._exit(0 if good and streams == 3 * [not bare] else 1)
"""


@pytest.mark.parametrize("without_proc", [False, True])
def test_a_helper_has_no_file_but_those_that_it_keeps(
    built_part: Callable[[str], Path], tmp_path: Path, without_proc: bool
) -> None:
    if without_proc and os.getuid() != 0:
        pytest.skip("only root may use chroot")
    words = (built_part("process"), tmp_path if without_proc else "")
    assert subprocess.run([sys.executable, "-c", PROGRAM, *words]).returncode == 0
