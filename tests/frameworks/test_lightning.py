"""The callback for Lightning.

Lightning is imported in functions: other lanes collect this file where it is not installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.frameworks


def test_a_checkpoint_that_is_saved_when_told_leaves_no_mark_of_its_first_name(
    tmp_path: Path,
) -> None:
    from bftrainer_slurm.elastic.callbacks.lightning import Elastic
    from bftrainer_slurm.elastic.resuming.marks import mark

    class Saves:
        is_global_zero, world_size = True, 1

        def save_checkpoint(self, path: Path) -> None:
            path.write_text("a state")
            mark(path, 1)  # as where ``resuming`` has changed Lightning's

    saves: Any = Saves()
    Elastic(tmp_path)._save(saves)
    assert {one.name for one in tmp_path.iterdir()} == {"last.ckpt", "last.ckpt.bftrainer.json"}
