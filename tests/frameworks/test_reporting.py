"""What a callback reports of a step, where no keeper hears it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.frameworks


@pytest.mark.parametrize(("found", "samples"), [(None, 32 * 2 * 3), (8, 8 * 2 * 3)])
def test_hugging_face_reports_the_batches_that_it_has_found_to_fit(
    monkeypatch: pytest.MonkeyPatch, found: int | None, samples: int
) -> None:
    from bftrainer_slurm.elastic.callbacks import huggingface

    reported: list[dict[str, Any]] = []
    monkeypatch.setattr(huggingface, "step", lambda **step: reported.append(step))
    arguments: Any = SimpleNamespace(
        train_batch_size=32, gradient_accumulation_steps=2, world_size=3
    )
    state: Any = SimpleNamespace(train_batch_size=found, global_step=5)
    huggingface.Elastic().on_step_end(arguments, state, control=SimpleNamespace())
    assert reported == [{"samples": samples, "number": 5}]
