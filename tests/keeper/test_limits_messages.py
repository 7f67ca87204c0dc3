"""How many messages a second a user's members may send together."""

from __future__ import annotations

from bftrainer_slurm.keeper.limits import MAX_MESSAGES_OF_USER, MESSAGES_OF_MEMBER, Share


def most(share: Share, now_s: float) -> int:
    share.messages = 0
    while not share.floods(now_s):
        pass
    return share.messages - 1


def test_with_each_member_a_user_may_send_more() -> None:
    share = Share(1001, 0.0)
    assert most(share, 0.0) == MAX_MESSAGES_OF_USER
    for _ in range(10):
        share.add(12)
    assert most(share, 0.0) == MAX_MESSAGES_OF_USER + 10 * MESSAGES_OF_MEMBER
    share.lose(12)
    assert most(share, 0.0) == MAX_MESSAGES_OF_USER + 9 * MESSAGES_OF_MEMBER


def test_what_comes_at_once_after_the_keeper_stood_still_is_no_flood() -> None:
    assert most(Share(1001, 0.0), 30.0) == 30 * MAX_MESSAGES_OF_USER
