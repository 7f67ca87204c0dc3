"""A script that begins at step 0 after each change is told so, whatever its framework loads."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.memory import VARIABLE, Memory

pytestmark = pytest.mark.frameworks
BEGIN = """
import os, time, torch
from bftrainer_slurm.elastic import steps
from bftrainer_slurm.elastic.tasks import worker
steps.count()
worker.prepare(os.environ)
folder = f"out-{time.time()}"
"""
SCRIPTS = {
    "huggingface": """
        import transformers

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)
            def forward(self, x):
                return {"loss": self.layer(x).square().mean()}

        arguments = transformers.TrainingArguments(
            folder, max_steps=6, warmup_steps=3, save_steps=1, logging_steps=1,
            report_to="none", use_cpu=True, disable_tqdm=True,
        )
        data = [{"x": torch.ones(1)}] * 60
        transformers.Trainer(Model(), arguments, train_dataset=data).train()
    """,
    "accelerate": """
        import accelerate

        accelerator = accelerate.Accelerator(cpu=True)
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.AdamW(model.parameters())
        rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 3))
        data = torch.utils.data.DataLoader(torch.ones(60, 1), batch_size=10)
        model, optimizer, data, rate = accelerator.prepare(model, optimizer, data, rate)
        for x in data:
            accelerator.backward(model(x).square().mean())
            optimizer.step()
            rate.step()
            optimizer.zero_grad()
            accelerator.save_state(folder)
    """,
}


@pytest.mark.parametrize(
    "framework", ["huggingface", pytest.param("accelerate", marks=pytest.mark.nightly)]
)
def test_a_script_whose_folder_has_the_time_in_its_name_is_told_once(
    tmp_path: Path, framework: str
) -> None:
    memory, said = Memory.made(), []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", BEGIN + textwrap.dedent(SCRIPTS[framework])],
            env=os.environ | {"BFTRAINER_ELEMENT": "7_1", VARIABLE: memory.path},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        said.append("has begun at step 0 again" in done.stderr)
        told = memory.read().from_start
        memory.begin()
    assert (said, told) == ([False, False, True], 2)
    counts = memory.read()
    assert counts.steps + (counts.lost or 0) == 3 * 6, "the first one, whose rate is 0, too"
