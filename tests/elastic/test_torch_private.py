"""The private places of torch: seen on which versions, and what follows where one is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from bftrainer_slurm import elastic
from bftrainer_slurm.elastic import torch_private

pytestmark = pytest.mark.torch
SEEN = ("2.6", "2.9", "2.13", "2.14", "2.15")


def test_this_torch_is_named_among_those_seen() -> None:
    """A torch that fails here is added to SEEN once the tests in this folder have passed on it."""
    assert torch.__version__.startswith(SEEN)


def test_no_other_module_uses_a_private_place() -> None:
    begins = r"\b(?:torch|dist|distributed)(?:\.\w+)*"
    private = re.compile(rf"{begins}\._(?!_version__)\w+|from torch[\w.]* import [^#\n]*\b_\w+")
    for path in Path(elastic.__path__[0]).rglob("*.py"):
        if path.name != "torch_private.py":
            code = re.sub(r'#.*|"[^"\n]*"', "", path.read_text())
            assert private.findall(code) == [], path.name


def test_where_torch_lists_its_groups_in_another_way_a_script_destroys_its_own_as_usual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    destroy = dist.destroy_process_group
    monkeypatch.setattr(dist, "destroy_process_group", destroy)
    monkeypatch.setattr(dist.distributed_c10d, "_world", object())
    torch_private.keep_groups()
    assert dist.destroy_process_group is destroy


def test_a_torch_that_starts_its_workers_in_another_way_says_that_changes_take_longer(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    monkeypatch.setattr(subprocess_handler, "SubprocessHandler", object)
    torch_private.fork_workers(lambda *_: None)
    said = "bftrainer: this torch starts each process anew, so a change of nodes takes longer"
    assert capfd.readouterr().err.startswith(said)
