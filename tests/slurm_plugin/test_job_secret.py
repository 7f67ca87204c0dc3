"""What the plugin makes of the site's key, beside what the keeper makes of it."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer_slurm.keeper.credentials import CredentialError, read_secret, secret_of_job

ERROR_SIZE = 256
KEEPER = 4712  # the user that the keeper runs as


@pytest.fixture(scope="module")
def library(built_part: Callable[[str], Path]) -> ctypes.CDLL:
    return ctypes.CDLL(str(built_part("job_secret")))


def plugins_secret(library: ctypes.CDLL, path: Path, array: int, uid: int) -> str:
    """The plugin's secret, or why there is none."""
    secret, error = ctypes.create_string_buffer(65), ctypes.create_string_buffer(ERROR_SIZE)
    library.job_secret.restype = ctypes.c_bool
    numbers = (ctypes.c_uint32(KEEPER), ctypes.c_uint32(array), ctypes.c_uint32(uid))
    if library.job_secret(os.fsencode(path), *numbers, secret, error):
        return secret.value.decode()
    raise CredentialError(error.value.decode())


def key_file(folder: Path, key: bytes, mode: int = 0o600) -> Path:
    path = folder / "key"
    path.write_bytes(key)
    path.chmod(mode)
    return path


NUMBERS = st.integers(0, 2**32 - 1)


@settings(max_examples=300, deadline=None)
@given(key=st.binary(max_size=1_100), array=NUMBERS, uid=NUMBERS)
def test_both_make_the_same_of_whatever_is_in_the_file(
    library: ctypes.CDLL, key: bytes, array: int, uid: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = key_file(Path(folder), key)
        try:
            expected = secret_of_job(read_secret(path), array, uid).decode()
        except CredentialError:
            with pytest.raises(CredentialError, match="it holds no key"):
                plugins_secret(library, path, array, uid)
        else:
            assert plugins_secret(library, path, array, uid) == expected


def test_a_key_that_others_can_read_is_not_used_and_a_pipe_holds_up_nobody(
    library: ctypes.CDLL, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    with pytest.raises(CredentialError, match="key: No such file"):
        plugins_secret(library, path, 12, 1000)
    for mode in (0o640, 0o604, 0o660, 0o666):
        key_file(tmp_path, os.urandom(32).hex().encode(), mode)
        with pytest.raises(
            CredentialError, match="others than its owner can open it; run chmod 600"
        ):
            plugins_secret(library, path, 12, 1000)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(CredentialError, match="chmod 600"):
        plugins_secret(library, path, 12, 1000)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to others")
def test_a_key_that_another_user_owns_is_not_used(library: ctypes.CDLL, tmp_path: Path) -> None:
    path = key_file(tmp_path, os.urandom(32).hex().encode())
    os.chown(path, 4711, -1)
    with pytest.raises(CredentialError, match="chown root"):
        plugins_secret(library, path, 12, 1000)
    with pytest.raises(CredentialError, match="another user's"):
        read_secret(path)
    os.chown(path, KEEPER, -1)
    assert plugins_secret(library, path, 12, 1000)
