"""What the gateway of commands asks of them, and makes of a refusal."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from bftrainer_slurm.model import ElementId, TimeLimit
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.gateway import RefusedError
from bftrainer_slurm.slurm.run import SlurmRunner
from tests.slurm.conftest import runner
from tests.tools import program

FIRST, SECOND = ElementId(12, 0), ElementId(12, 1)
LIMIT = TimeLimit(60, least=10)


def grow(folder: Path, says: str) -> None:
    """Grow by a bftrainer-grow that refuses a limit to 12_0, and notes what it was asked."""
    does = 'cat > /dev/null\necho "$*" >> "$0.asked"\n[ $# = 1 ] && exit 0\n'
    path = program(folder, "bftrainer-grow", f'{does}echo "12_0: {says}" >&2\nexit 1')
    nodes, others = frozenset({"n1", "n2"}), frozenset({"n3"})
    gateway = CommandGateway(grow_program=str(path))
    gateway.grow([FIRST, SECOND], nodes, others, LIMIT, excluded=frozenset())


def test_an_element_that_slurm_sets_no_limit_for_starts_without_one(tmp_path: Path) -> None:
    grow(tmp_path, "Job has already finished")
    asked = (tmp_path / "bftrainer-grow.asked").read_text().splitlines()
    assert asked == ["12_[0-1] 60 10", "12_[0]"]


def test_any_other_refusal_is_one(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as refused:
        grow(tmp_path, "Access/permission denied")
    assert refused.value.elements == (FIRST,)


def test_of_a_federation_only_this_cluster_is_read(tmp_path: Path) -> None:
    told = 'echo "$*" >> "${0%/*}/asked"'
    gateway = CommandGateway(runner(tmp_path, sinfo=told, squeue=told))
    gateway.nodes()
    gateway.queue()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert {"--local" in words for words in asked if words != "--version"} == {True}


def test_nothing_to_do_asks_nothing_and_elements_of_two_trainers_are_a_mistake() -> None:
    gateway = CommandGateway(SlurmRunner(environment={"PATH": "/nowhere"}))
    end_at = partial(gateway.end_at, end_s=0.0)
    for change in (gateway.shrink, gateway.hold, end_at, gateway.trim):
        change([])
    with pytest.raises(ValueError, match="more than one trainer"):
        gateway.shrink([ElementId(1, 0), ElementId(2, 0)])
