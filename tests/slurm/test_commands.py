"""What the gateway makes of refusals; a made-up bftrainer-grow stands for Slurm in trouble."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bftrainer_slurm.model import ElementId, TimeLimit
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.gateway import RefusedError
from bftrainer_slurm.slurm.run import SlurmRunner

FIRST, SECOND = ElementId(12, 0), ElementId(12, 1)
LIMIT = TimeLimit(60, least=10)


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """A bftrainer-grow that refuses a limit to 12_0; what it was asked is in a file beside it."""
    program = tmp_path / "bftrainer-grow"
    program.write_text(
        '#!/bin/sh\ncat > /dev/null\necho "$*" >> "$0.asked"\n'
        '[ $# = 1 ] && exit 0\necho "12_0: $SAYS" >&2\nexit 1\n'
    )
    program.chmod(0o755)
    return program


def grow(program: Path, says: str) -> list[str]:
    runner = SlurmRunner(environment={"PATH": os.environ["PATH"], "SAYS": says})
    gateway = CommandGateway(runner, str(program))
    try:
        nodes, others = frozenset({"n1", "n2"}), frozenset({"n3"})
        gateway.grow([FIRST, SECOND], nodes, others, LIMIT, excluded=frozenset())
    finally:
        asked = Path(f"{program}.asked").read_text().splitlines()
    return asked


def test_an_element_that_slurm_sets_no_limit_for_starts_without_one(asked: Path) -> None:
    assert grow(asked, "Job has already finished") == ["12_[0-1] 60 10", "12_[0]"]


def test_of_a_federation_only_this_cluster_is_read(tmp_path: Path) -> None:
    for name in ("sinfo", "squeue"):
        command = tmp_path / name
        command.write_text('#!/bin/sh\necho "$*" >> "${0%/*}/asked"\n')
        command.chmod(0o755)
    gateway = CommandGateway(SlurmRunner(environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"}))
    gateway.nodes()
    gateway.queue()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert {"--local" in words for words in asked if words != "--version"} == {True}


def test_any_other_refusal_is_one(asked: Path) -> None:
    with pytest.raises(RefusedError) as refused:
        grow(asked, "Access/permission denied")
    assert refused.value.elements == (FIRST,)
