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


@pytest.mark.parametrize("private", [False, True])
def test_of_others_trainers_is_shown_what_squeue_shows_or_nothing_where_jobs_are_private(
    private: bool,
) -> None:
    plain = {"name": "net", "state": "running", "nodes": ["n1"]}
    own = {**plain, "samples": 7.0, "error": "Traceback", "page": "http://x/#key=y"}
    trainers = [{**own, "array": array, "user": user} for array, user in ((1, "alice"), (2, "bob"))]
    known = frozenset({"jobs"} if private else ())
    seen = authenticate(f"Bearer {key_of('alice', SECRET)}", SECRET, known)
    bobs = {**plain, "array": 2, "user": "bob", "hidden": True}
    assert seen.visible_trainers(trainers) == [trainers[0], *([] if private else [bobs])]


def test_a_link_carries_the_key_where_browsers_do_not_send_it() -> None:
    link = link_of("127.0.0.1:6741", 12, "a&b c", SECRET)
    assert link.startswith("http://127.0.0.1:6741/#trainer=12&key=a%26b%20c.")


def test_a_damaged_key_of_the_page_is_named_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "page.key").touch()
    assert key_in(tmp_path) == ""
    assert f"{tmp_path / 'page.key'} is damaged" in caplog.text
