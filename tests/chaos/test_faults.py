"""What faults tell the suite of what they have struck."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

from tests.chaos.faults.slurm import FAULTS


def test_a_node_that_is_removed_is_struck_with_the_jobs_on_it(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    conf = tmp_path / "slurm.conf"
    conf.write_text("NodeName=n1 NodeAddr=10.0.0.1 Port=6818 CPUs=16\n")
    world = Mock(folder=tmp_path, nodes=["n1"], struck=set[str](), silent=set[str]())
    at_its_end: list[set[str]] = []
    end = Mock(side_effect=lambda *_: at_its_end.append(set(world.struck)))
    world.lab = Mock(nodes=1, daemons={}, add_host=Mock(return_value="10.0.0.2"), kill_host=end)
    course = FAULTS["node-added"](world)
    next(course)
    assert not world.struck
    assert "NodeName=n2 NodeAddr=10.0.0.2" in conf.read_text()
    assert list(course) == []
    assert at_its_end == [{"n2"}]
    assert "NodeName=n2" not in conf.read_text()
