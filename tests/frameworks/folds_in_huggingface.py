"""Cross-validation: three folds, each with a new model and a new Trainer.

They have one output folder, or OWN_FOLDERS.

The fold and the size of the world of each step are in a file of the process.
"""

import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset, Subset
from transformers import Trainer, TrainingArguments

FOLDS, SAMPLES, EPOCHS = 3, 120, 4


class Rows(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"x": torch.full((4,), row / SAMPLES)}


class Model(torch.nn.Module):
    def __init__(self, fold: int) -> None:
        super().__init__()
        self.fold, self.layer = fold, torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        time.sleep(
            2.0 if (self.fold, torch.distributed.get_world_size()) == (1, 1) else 0.05
        )  # here a node joins
        print(self.fold, torch.distributed.get_world_size(), file=LOG)
        return {"loss": self.layer(x).square().mean()}


def main() -> None:
    for fold in range(FOLDS):
        rows = [row for row in range(SAMPLES) if row % FOLDS != fold]
        arguments = TrainingArguments(
            str(FOLDER / "output" / os.environ.get("OWN_FOLDERS", "").format(fold)),
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=8,
            save_strategy="epoch",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        Trainer(Model(fold), arguments, train_dataset=Subset(Rows(), rows)).train()
    print("ended", 0, file=LOG)


FOLDER = Path(sys.argv[1])
LOG = (FOLDER / f"{os.environ['SLURMD_NODENAME']}.{os.getpid()}").open("w", 1)
main()
