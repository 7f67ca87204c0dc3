"""Who may see what on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer_slurm.controller.publish.keys import key_in, key_of, link_of
from bftrainer_slurm.reader.access import Viewer, authenticate

SECRET = "s3cret"


def bearer(key: str, secret: str = SECRET) -> Viewer:
    return authenticate(f"Bearer {key}", secret, frozenset())


@pytest.mark.parametrize("user", ["alice", "a.b", "jörg", "o'hara", ""])
def test_a_users_key_is_for_that_users_trainers_and_that_of_the_state_folder_for_all(
    user: str,
) -> None:
    found = bearer(key_of(user, SECRET))
    assert (found.owns(user), found.owns("bob")) == (bool(user), False)
    assert bearer(SECRET).owns("bob")


FORGED = ("", ".", "alice", "alice.", f"alice.{'0' * 64}", "\u00e9.\u00e9", "x" * 10_000)
OTHERS = (key_of("alice", "another"), key_of("bob", SECRET).replace("bob", "alice"), SECRET[:-1])


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        *((SECRET, key) for key in (*FORGED, *OTHERS)),
        *(("", key) for key in ("", key_of("alice", ""), ".", "alice.")),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_another_key_is_none_nor_is_any_where_there_is_no_secret(secret: str, key: str) -> None:
    assert bearer(key, secret) == Viewer()


def test_a_link_carries_the_key_where_browsers_do_not_send_it() -> None:
    link = link_of("127.0.0.1:6741", 12, "a&b c", SECRET)
    assert link.startswith("http://127.0.0.1:6741/#trainer=12&key=a%26b%20c.")


def test_a_damaged_key_of_the_page_is_named_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "page.key").touch()
    assert key_in(tmp_path) == ""
    assert f"{tmp_path / 'page.key'} is damaged" in caplog.text
