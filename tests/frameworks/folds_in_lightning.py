"""Cross-validation: three folds, each with a new model and a new Trainer, in one default folder.

The fold and the size of the world of each step are in a file of the process.
"""

import os
import sys
import time
from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

FOLDS, SAMPLES, EPOCHS = 3, 120, 4


class Model(lightning.LightningModule):
    def __init__(self, fold: int) -> None:
        super().__init__()
        self.fold, self.layer = fold, torch.nn.Linear(4, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        time.sleep(
            2.0 if (self.fold, self.trainer.world_size) == (1, 1) else 0.05
        )  # here a node joins
        print(self.fold, self.trainer.world_size, file=LOG)
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


def main() -> None:
    data = TensorDataset(torch.randn(SAMPLES, 4))
    for fold in range(FOLDS):
        rows = [row for row in range(SAMPLES) if row % FOLDS != fold]
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            strategy="ddp",
            max_epochs=EPOCHS,
            default_root_dir=FOLDER,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Model(fold), DataLoader(Subset(data, rows), batch_size=8, shuffle=True))
    print("ended", 0, file=LOG)


FOLDER = Path(sys.argv[1])
LOG = (FOLDER / f"{os.environ['SLURMD_NODENAME']}.{os.getpid()}").open("w", 1)
main()
