"""The plugin's side of a conversation with a real keeper: who proves what to whom."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.credentials import Gate
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import KEY, TOKEN, Inside, keeper_inside
from tests.keeper.test_proofs import IMPOSTORS, impostor

ARRAY, USER = 12, 1001

# In a process of its own: the plugin forks in one without threads.
ASK = """
import ctypes, mmap, sys
library, keeper, key, user, line = sys.argv[1:]
plugin = ctypes.CDLL(library)
plugin.job_secret.restype = plugin.keeper_ask.restype = ctypes.c_bool
secret, error = ctypes.create_string_buffer(65), ctypes.create_string_buffer(256)
assert plugin.job_secret(key.encode(), 0, 12, int(user), secret, error), error.value
shared = mmap.mmap(-1, 8192)
found = (ctypes.c_char * 8192).from_buffer(shared)
plugin.keeper_ask(keeper.encode(), b"12", secret, line.encode(), found)
print(shared[8:].partition(b"\\0")[0].decode())  # after two numbers
"""
UP = '{"up":{"task":3,"node":"n1"}}'


@pytest.fixture
def ask(built_part: Callable[[str], Path], tmp_path: Path) -> Callable[..., str]:
    key, library = tmp_path / "key", built_part("keeper_note")
    key.touch(mode=0o600)
    key.write_bytes(KEY)

    def asked(keeper: str, line: str = UP, user: int = USER) -> str:
        command = [sys.executable, "-c", ASK, library, keeper, key, str(user), line]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout.strip()

    return asked


@pytest.fixture
def keeper() -> Iterator[Inside]:
    with keeper_inside(Gate(TOKEN, KEY)) as running:
        running.client.own(ARRAY, USER, 1)
        running.client.say(ARRAY, "begins")
        yield running


def test_an_element_that_is_up_learns_its_run_and_that_it_is_the_first(
    keeper: Inside, ask: Callable[..., str]
) -> None:
    address = keeper.client.address
    # The plugin waits for a moment only, and a busy machine may need longer.
    wait_until(lambda: ask(address) == '{"started":{"run":"12.1","first":true}}')
    wait_until(lambda: ask(address) == '{"started":{"run":"12.1","first":false}}')
    keeper.client.say(ARRAY, "finished")
    wait_until(lambda: ask(address) == '{"finished":{"code":0}}')
    note = keeper.notes(1)[0]
    assert (note.array, note.task, note.node) == (ARRAY, 3, "n1")


def test_a_forged_one_takes_nothing_away_and_hears_why(
    keeper: Inside, ask: Callable[..., str]
) -> None:
    address = keeper.client.address
    said = "refused what answers there is not the keeper, or has another key"
    wait_until(lambda: ask(address, user=USER + 1) == said)
    wait_until(lambda: ask(address).endswith('"first":true}}'))


def test_who_is_too_early_or_says_something_wrong_hears_why_and_of_nobody_there_nothing(
    keeper: Inside, ask: Callable[..., str]
) -> None:
    address = keeper.client.address
    wait_until(lambda: ask(address, '{"up":{}}').startswith("refused not a message"))
    with keeper_inside(Gate(TOKEN, KEY)) as early:
        said = "refused whose trainer 12 is, is not known yet"
        wait_until(lambda: ask(early.client.address) == said)
    assert ask("127.0.0.1:1") == ""


@pytest.mark.parametrize("kind", IMPOSTORS)
def test_who_poses_as_the_keeper_hears_nothing_and_the_next_host_is_asked(
    keeper: Inside, ask: Callable[..., str], kind: str
) -> None:
    with impostor(IMPOSTORS[kind]) as (address, heard):
        assert "started" not in ask(address)
        assert b"proof" not in b"".join(heard)
        both = f"{address},{keeper.client.address}"
        wait_until(lambda: "started" in ask(both))


def test_what_an_impostor_says_is_safe_to_show(ask: Callable[..., str]) -> None:
    with impostor(lambda who, nonce: b"refused \x1b]0;mine\x07\xff" + b"x" * 400 + b"\n") as it:
        assert ask(it[0]) == "refused ?]0;mine??" + "x" * 400
    with impostor(lambda who, nonce: b"x" * 5_000) as it:
        assert ask(it[0]) == ""
