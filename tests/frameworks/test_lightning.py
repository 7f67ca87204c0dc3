"""A Lightning script that is started again goes on with its epochs, checkpoints, marks and rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.worker import said

pytestmark = pytest.mark.frameworks
# Ten batches an epoch. The first process ends in the middle of epoch 2; the best epoch is 0.
SCRIPT = """
import os
from pathlib import Path
import lightning, torch
from lightning.pytorch.callbacks import (
    LearningRateFinder, ModelCheckpoint, StochasticWeightAveraging
)
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader

begins = not Path("begun").exists()
Path("begun").touch()

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.lr = torch.nn.Linear(1, 1), 0.01
    def training_step(self, batch, number):
        print("trains", self.trainer.global_step)
        if begins and (self.current_epoch, number) == (2, 5):
            os._exit(0)
        loss = self.layer(batch).square().mean()
        self.log("loss", loss)
        return loss
    def validation_step(self, batch, number):
        self.log("value", float(self.current_epoch))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.lr)

loader = DataLoader(torch.ones(10, 1))
trainer = lightning.Trainer(
    accelerator="cpu", devices=1, log_every_n_steps=1,
    enable_progress_bar=False, enable_model_summary=False, OPTIONS
)
trainer.fit(Model(), loader, loader)
print(*sorted(path.name for path in Path("checkpoints").glob("*")))
(ours,) = (one for one in trainer.callbacks if type(one).__name__ == "Elastic")
ours._save(trainer)
print(*sorted(path.name for path in ours.folder.iterdir()))
print("ended at step", trainer.global_step, "of epoch", trainer.current_epoch)
print("best", trainer.checkpoint_callback.best_model_path)
"""


def lines_of_two_lives(folder: Path, options: str, stream: str = "stdout") -> list[str]:
    """Return what the second process prints."""
    script = SCRIPT.replace("OPTIONS", options)
    said(folder, script)
    return said(folder, script, stream)


@pytest.mark.parametrize("options", ["max_epochs=4", "max_epochs=4, max_steps=1000"])
def test_after_an_epochs_end_the_next_one_is_trained_whole(tmp_path: Path, options: str) -> None:
    lines = lines_of_two_lives(tmp_path, f"logger=False, {options}")
    assert [line for line in lines if "trains" in line] == [f"trains {at}" for at in range(20, 40)]
    assert "ended at step 40 of epoch 4" in lines
    (names,) = (set(line.split()) for line in lines if line.startswith("epoch="))
    checkpoints = {name for name in names if name.endswith(".ckpt")}
    assert names == checkpoints | {f"{name}.bftrainer.json" for name in checkpoints}
    assert "epoch=3-step=40.ckpt" in checkpoints and "epoch=2-step=30.ckpt" not in checkpoints
    assert "last.ckpt last.ckpt.bftrainer.json" in lines, "the one saved when told has its own"


def test_what_searches_a_rate_first_goes_on_too(tmp_path: Path) -> None:
    search = "LearningRateFinder(num_training_steps=3, early_stop_threshold=None)"
    options = f"callbacks=[{search}, ModelCheckpoint('.')], logger=False, max_epochs=4"
    lines = lines_of_two_lives(tmp_path, options)
    trained = [line for line in lines if "trains" in line]
    assert trained[3:] == [f"trains {at}" for at in range(20, 40)]


@pytest.mark.parametrize("logger", ["True", "CSVLogger('rows')"])
def test_the_best_checkpoint_is_that_of_the_whole_training(tmp_path: Path, logger: str) -> None:
    best = "ModelCheckpoint(monitor='value', save_top_k=1)"
    lines = lines_of_two_lives(tmp_path, f"callbacks=[{best}], logger={logger}, max_epochs=4")
    kept = [path for path in tmp_path.rglob("*.ckpt") if ".bftrainer" not in path.parts]
    assert [path.name for path in kept] == ["epoch=0-step=10.ckpt"]
    assert tmp_path / lines[-1].removeprefix("best ") == kept[0]


def test_a_csv_file_keeps_its_rows(tmp_path: Path) -> None:
    logger = "CSVLogger('.', name='', version='', flush_logs_every_n_steps=1)"
    lines_of_two_lives(tmp_path, f"logger={logger}, max_epochs=4")
    header, *rows = (tmp_path / "metrics.csv").read_text().splitlines()
    column = header.split(",").index("step")
    assert {int(row.split(",")[column]) for row in rows} == set(range(40))


@pytest.mark.parametrize(("every", "told"), [(3, 1), (10, 0)])
def test_an_average_that_waits_for_the_next_epoch_is_said(
    tmp_path: Path, every: int, told: int
) -> None:
    saves = f"ModelCheckpoint('.', every_n_train_steps={every})"
    options = f"callbacks=[StochasticWeightAveraging(0.1, 1), {saves}], logger=False, max_epochs=4"
    lines = lines_of_two_lives(tmp_path, options, "stderr")
    assert sum("takes up its average at the next epoch" in line for line in lines) == told
