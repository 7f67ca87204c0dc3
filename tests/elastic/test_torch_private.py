"""The private places of torch: seen on which versions, and what follows where one is missing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import api

from bftrainer_slurm import elastic
from bftrainer_slurm.elastic import torch_private
from bftrainer_slurm.elastic.inprocess.peers import RestartError, be_restarted, find_peers
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import started_agents
from tests.elastic.alone import as_new_process

pytestmark = pytest.mark.torch
ELEMENT = {"BFTRAINER_KEEPER": "ctl:6820", "BFTRAINER_ELEMENT": "12_3"}


def test_this_torch_has_them_all_and_is_named_among_those_seen() -> None:
    """A torch that fails here is added to SEEN once the tests in this folder have passed on it."""
    assert torch_private.missing(torch_private.PLACES) is None
    assert torch.__version__.startswith(torch_private.SEEN)


@pytest.mark.skipif(
    torch.__version__.startswith(("2.6", "2.9")), reason="what these lack is in docs/frameworks"
)
def test_this_torch_has_what_sharded_models_use() -> None:
    assert torch_private.missing(torch_private.FUNCTIONAL) is None
    assert torch_private.missing(torch_private.SHARDING) is None


def test_no_other_module_uses_a_private_place() -> None:
    found = []
    for path in Path(elastic.__path__[0]).rglob("*.py"):
        if path.name != "torch_private.py":
            found += [f"{path.name}: {one}" for one in private_places(ast.parse(path.read_text()))]
    assert not found


def private_places(tree: ast.AST) -> Iterator[str]:
    """Yield what a module imports of torch, or reads in it, that begins with an underscore."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            names = [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            names = [one.name for one in node.names if one.name.partition(".")[0] == "torch"]
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            names = [name] if name.partition(".")[0] in ("torch", "dist", "distributed") else []
        else:
            continue
        yield from (name for name in names if "._" in name.replace(".__version__", ""))


def test_one_that_is_missing_is_named() -> None:
    places = ("torch.distributed.Work", "torch.distributed.Work._gone", "torch._also_gone")
    assert torch_private.missing(places) == "torch.distributed.Work._gone"


def test_where_torchruns_end_of_its_processes_is_another_it_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "PContext", object())
    assert not torch_private.end_workers_within(2.0, lambda: None)


def test_where_torch_lists_its_groups_in_another_way_a_script_destroys_its_own_as_usual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    destroy = dist.destroy_process_group
    monkeypatch.setattr(dist, "destroy_process_group", destroy)
    monkeypatch.setattr(dist.distributed_c10d, "_world", object())
    torch_private.keep_groups()
    assert dist.destroy_process_group is destroy


def test_without_one_of_them_torchrun_restarts_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "missing", lambda: "torch.gone")
    refused = pytest.raises(RestartError, match=r"has no torch\.gone: write 'srun torchrun'")
    with as_new_process(), refused:
        find_peers(ELEMENT, None, nccl_in_process=False, saves=True)


def test_the_first_rank_says_that_it_is_restarted(capfd: pytest.CaptureFixture[str]) -> None:
    for rank in ("0", "1"):
        environment = ELEMENT | {"TORCHELASTIC_RUN_ID": "12.1", "RANK": rank}
        be_restarted(environment, "torch is old", saves=True)
        be_restarted(environment, "torch is old", saves=False)
    with_checkpoint, without = capfd.readouterr().err.splitlines()
    begin = "bftrainer: torch is old: at each change this script starts again from"
    assert with_checkpoint == f"{begin} its checkpoint"
    assert without == f"{begin} what it has saved itself: give the trainer checkpoint=FOLDER"


def test_a_restarted_script_goes_on_from_its_checkpoint_with_the_nodes_there_are(
    keeper: Keeper, tmp_path: Path
) -> None:
    script = Path(__file__).with_name("restarted.py")
    with started_agents(keeper, tmp_path / "trainer", script) as agents:
        agents.own(1)
        agents.start(1, EVERY_S="0.1")
        agents.wait_for_world(1, 1)
        wait_until(lambda: any((tmp_path / "trainer").glob("saved/step-*")))
        before = agents.steps(1)[-1]
        agents.own(2)
        agents.start(2, EVERY_S="0.1")
        agents.wait_for_world(2, 1, 2)
        assert agents.steps(1)[-1].process != before.process
        assert agents.steps(2)[0].number > 1
        assert "torch.gone: at each change this script starts again" in agents.log(1)
