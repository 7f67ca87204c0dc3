"""Cross-validation: three folds, each with a new model and a new Trainer of FRAMEWORK.

They have one output folder, or OWN_FOLDERS. Lightning is told NODES. In a file of the process is a
line for each step: its time, the size of the world, the fold.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

FOLDS, SAMPLES, EPOCHS = 3, 120, 4
WORLD = int(os.environ.get("WORLD_SIZE", "1"))


def loss(fold: int, layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    time.sleep(2.0 if (fold, WORLD) == (1, 1) else 0.05)  # here a node joins
    print(time.monotonic(), WORLD, fold, file=LOG)
    return layer(x).square().mean()


def by_lightning(fold: int, rows: list[torch.Tensor]) -> None:
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return loss(fold, self.layer, batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        num_nodes=int(os.environ.get("NODES", "1")),
        strategy="ddp",
        max_epochs=EPOCHS,
        default_root_dir=FOLDER,
        **quiet,
    )
    trainer.fit(Model(), DataLoader(rows, batch_size=8, shuffle=True))  # type: ignore[arg-type]


def by_huggingface(fold: int, rows: list[torch.Tensor]) -> None:
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": loss(fold, self.layer, x)}

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
    data: Any = [{"x": row} for row in rows]
    Trainer(Model(), arguments, train_dataset=data).train()


FOLDER = Path(sys.argv[1])
LOG = (FOLDER / f"{os.environ['SLURMD_NODENAME']}.{os.getpid()}").open("w", 1)
for fold in range(FOLDS):
    rows = [torch.full((4,), row / SAMPLES) for row in range(SAMPLES) if row % FOLDS != fold]
    (by_lightning if os.environ["FRAMEWORK"] == "lightning" else by_huggingface)(fold, rows)
