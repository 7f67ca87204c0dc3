"""A trainer's own secret as proof of whose process speaks, where a site has no MUNGE."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bftrainer_slurm.keeper.credentials import JOB_SECRET, prover_from, secret_of_job
from bftrainer_slurm.keeper.gate import Claim, Gate, SiteKey
from bftrainer_slurm.keeper.membership import Membership
from bftrainer_slurm.keeper.messages import Identity, Role
from scripts.labcluster.waiting import wait_until
from tests.keeper.inside import Inside, keeper_inside, together

KEY = b"a key of the site's, of sixteen bytes or more"
ALICE, BOB = 1001, 1002


@pytest.fixture
def keeper() -> Iterator[Inside]:
    with keeper_inside(Gate(SiteKey(KEY))) as running:
        yield running


def member(keeper: Inside, secret: bytes, task: int = 1, array: int = 12) -> Membership:
    identity = Identity(array, task, f"n{task}", Role.AGENT)
    prover = prover_from({JOB_SECRET: secret.decode()})
    made = Membership(keeper.client.address, identity, prover)
    keeper.members.append(made)
    made.start()
    return made


def test_the_trainers_processes_are_welcome(keeper: Inside) -> None:
    keeper.client.own(12, ALICE, 2)
    secret = secret_of_job(KEY, 12, ALICE)
    members = [member(keeper, secret, task) for task in (1, 2)]
    assert {one.world for one in together(members)} == {2}


def test_before_the_owner_is_known_members_wait(keeper: Inside) -> None:
    early = member(keeper, secret_of_job(KEY, 12, ALICE))
    wait_until(lambda: "owner_unknown" in keeper.counts())
    keeper.client.own(12, ALICE, 1)
    assert together([early])[0].world == 1


@pytest.mark.parametrize(
    "secret",
    [
        pytest.param(secret_of_job(KEY, 13, ALICE), id="of another trainer of the same user"),
        pytest.param(secret_of_job(KEY, 12, BOB), id="of another user's array of that number"),
        pytest.param(secret_of_job(b"another key of the site", 12, ALICE), id="of another key"),
    ],
)
def test_another_secret_opens_nothing(keeper: Inside, secret: bytes) -> None:
    keeper.client.own(12, ALICE, 1)
    stranger = member(keeper, secret)
    stranger.ready("new")
    wait_until(lambda: keeper.counts().get("bad_proof", 0) > 1)
    with pytest.raises(TimeoutError):
        stranger.wait_generation(0.1)


class Credulous(SiteKey):
    """Takes every proof, as who poses as the keeper may."""

    async def check(self, proof: str, claim: Claim) -> bytes:
        return os.urandom(32)


def test_who_poses_as_the_keeper_is_not_believed() -> None:
    with keeper_inside(Gate(Credulous(os.urandom(32)))) as impostor:
        impostor.client.own(12, ALICE, 1)
        deceived = member(impostor, secret_of_job(KEY, 12, ALICE))
        deceived.ready("new")
        with pytest.raises(TimeoutError):
            deceived.wait_generation(3)


def test_who_has_no_secret_is_told_what_is_missing(keeper: Inside) -> None:
    with pytest.raises(Exception, match=JOB_SECRET):
        prover_from({})("payload", "job")
