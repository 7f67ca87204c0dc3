"""The private places of torch: seen on which versions, and what follows where one is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.distributed.elastic.multiprocessing import api

from bftrainer_slurm.elastic import torch_private
from bftrainer_slurm.elastic.inprocess.members import RestartError, be_restarted, find_members
from scripts.labcluster.keeper import started_keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import Agents

pytestmark = pytest.mark.torch
ELEMENT = {"BFTRAINER_KEEPER": "ctl:6820", "BFTRAINER_ELEMENT": "12_3"}


def test_this_torch_has_them_all_and_is_named_among_those_seen() -> None:
    """A torch that fails here is added to SEEN once the tests in this folder have passed on it."""
    assert torch_private.missing() is None
    assert torch.__version__.startswith(torch_private.SEEN)


def test_one_that_is_missing_is_named() -> None:
    places = ("torch.distributed.Work", "torch.distributed.Work._gone", "torch._also_gone")
    assert torch_private.missing(places) == "torch.distributed.Work._gone"


def test_where_torchruns_end_of_its_processes_is_another_it_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "PContext", object())
    assert not torch_private.end_workers_within(2.0, lambda: None)


def test_without_one_of_them_torchrun_restarts_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "missing", lambda: "torch.gone")
    with pytest.raises(RestartError, match=r"has no torch\.gone: write 'srun torchrun'"):
        find_members(ELEMENT, "gloo", nccl_in_process=False)


def test_the_first_rank_says_that_it_is_restarted(capsys: pytest.CaptureFixture[str]) -> None:
    for rank in ("0", "1"):
        be_restarted(ELEMENT | {"TORCHELASTIC_RUN_ID": "12.1", "RANK": rank}, "torch is old")
    said = capsys.readouterr().err
    assert said.startswith("bftrainer: torch is old: at each change this script starts again")
    assert said.count("\n") == 1


def test_a_restarted_script_goes_on_from_its_checkpoint_with_the_nodes_there_are(
    tmp_path: Path,
) -> None:
    script = Path(__file__).with_name("restarted.py")
    (tmp_path / "state").mkdir()
    with started_keeper(tmp_path / "state") as keeper:
        agents = Agents(keeper, tmp_path / "trainer", script)
        try:
            agents.own(1)
            agents.start(1)
            agents.wait_for_world(1, 1)
            wait_until(lambda: any((tmp_path / "trainer").glob("saved/step-*")))
            before = agents.steps(1)[-1]
            agents.own(2)
            agents.start(2)
            agents.wait_for_world(2, 1, 2)
            assert agents.steps(1)[-1].process != before.process
            assert agents.steps(2)[0].number > 1
            assert "torch.gone: at each change this script starts again" in agents.log(1)
        finally:
            agents.end()
