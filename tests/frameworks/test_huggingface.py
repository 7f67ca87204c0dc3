"""Hugging Face's Trainer: what it marks as complete, what it reports, and when it is told of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bftrainer_slurm.elastic.memory import VARIABLE, Memory
from tests.frameworks.worker import said

pytestmark = pytest.mark.frameworks
SCRIPT = """
from pathlib import Path
import shutil, time, torch, transformers

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def forward(self, x):
        return {"loss": self.layer(x).square().mean()}

def marks():
    return sorted(path.parent.name for path in Path("out").glob("*/bftrainer.json"))

class Uploads(transformers.TrainerCallback):
    def on_save(self, *_, **__):
        print("on_save", *marks())

rmtree = shutil.rmtree
def remove(path, **options):
    print("removes", Path(path).name, "of", *marks())
    rmtree(path, **options)
shutil.rmtree = remove

arguments = transformers.TrainingArguments(
    FOLDER, max_steps=4, save_steps=2, save_total_limit=1, warmup_steps=3, logging_steps=1,
    report_to="none", use_cpu=True, disable_tqdm=True, remove_unused_columns=False)
rows = [{"x": torch.ones(1)}] * 60
transformers.Trainer(Model(), arguments, train_dataset=rows, callbacks=[Uploads()]).train()
"""


def test_a_checkpoint_is_marked_before_older_ones_go_and_before_the_scripts_own_callback(
    tmp_path: Path,
) -> None:
    lines = said(tmp_path, SCRIPT.replace("FOLDER", "'out'"))
    assert [line for line in lines if line.startswith(("on_save", "removes"))] == [
        "on_save checkpoint-2",
        "removes checkpoint-2 of checkpoint-2 checkpoint-4",
        "on_save checkpoint-4",
    ]


def test_a_script_whose_folder_has_the_time_in_its_name_is_told_once_that_it_begins_again(
    tmp_path: Path,
) -> None:
    memory, told = Memory.made(), []
    script = SCRIPT.replace("FOLDER", "f'out-{time.time()}'")
    for _ in range(3):
        lines = said(tmp_path, script, "stderr", **{VARIABLE: memory.path})
        told.append(any("has begun at step 0 again" in line for line in lines))
        from_start = memory.read().from_start
        memory.begin()
    assert (told, from_start) == ([False, False, True], 2)
    counts = memory.read()
    assert counts.steps + (counts.lost or 0) == 3 * 4, "the first one, whose rate is 0, too"


@pytest.mark.parametrize(("found", "samples"), [(None, 32 * 2 * 3), (8, 8 * 2 * 3)])
def test_it_reports_the_batches_that_it_has_found_to_fit(
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
