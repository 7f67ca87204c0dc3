"""Cross-validation: three folds, each with a new model and a new Trainer of FRAMEWORK.

They have one output folder, or OWN_FOLDERS. Lightning is told NODES. With STREAM it is one training
of max_steps on a stream, which rank 0 reads for all. In a file of the process is a line for each
step: its time, the size of the world, the fold; of a stream one for each sample and its number.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

FOLDS, SAMPLES, EPOCHS = 3, 120, 4
WORLD = int(os.environ.get("WORLD_SIZE", "1"))


def of_fold(fold: int, layer: torch.nn.Module, x: Tensor) -> Tensor:
    """Return the loss of a batch."""
    time.sleep(2.0 if (fold, WORLD) == (1, 1) else 0.05)  # here a node joins
    print(time.monotonic(), WORLD, fold, file=LOG)
    return layer(x).square().mean()


def of_stream(layer: torch.nn.Module, x: Tensor) -> Tensor:
    time.sleep(0.1)
    for row in x.flatten().tolist():
        print(time.monotonic(), WORLD, int(row), file=LOG)
    return layer(x / 1e5).square().mean()


class Numbers(IterableDataset[dict[str, Tensor]]):
    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        return ({"x": torch.full((1,), float(row))} for row in range(100_000))


def by_lightning(fold: int, rows: list[Tensor]) -> None:
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Tensor, _: int) -> Tensor:
            return of_fold(fold, self.layer, batch)

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


def by_huggingface(loss: Callable[..., Tensor], data: Any, folder: str, **how: Any) -> None:
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"loss": loss(self.layer, x)}

    how |= {"report_to": "none", "use_cpu": True, "disable_tqdm": True}
    arguments = TrainingArguments(
        str(FOLDER / "output" / folder), remove_unused_columns=False, **how
    )
    Trainer(Model(), arguments, train_dataset=data).train()


def train(fold: int) -> None:
    rows = [torch.full((1,), row / SAMPLES) for row in range(SAMPLES) if row % FOLDS != fold]
    if os.environ["FRAMEWORK"] == "lightning":
        by_lightning(fold, rows)
    else:
        folder, data = os.environ.get("OWN_FOLDERS", "").format(fold), [{"x": row} for row in rows]
        how = {"num_train_epochs": EPOCHS, "save_strategy": "epoch"}
        by_huggingface(partial(of_fold, fold), data, folder, per_device_train_batch_size=8, **how)


FOLDER = Path(sys.argv[1])
LOG = (FOLDER / f"{os.environ['SLURMD_NODENAME']}.{os.getpid()}").open("w", 1)
if "STREAM" in os.environ:
    steps = {"max_steps": 100_000, "gradient_accumulation_steps": 2}
    by_huggingface(of_stream, Numbers(), "", per_device_train_batch_size=4, **steps)
else:
    for fold in range(FOLDS):
        train(fold)
