"""An accelerate loop that rescales in process; without nodes it goes on from a checkpoint."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import TensorDataset

from bftrainer_slurm import elastic


def made_data() -> TensorDataset:
    """Return points, and to which side of a made-up line they belong."""
    x = torch.randn(20_000, 64, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x[:, :8].sum(1) > 0).long())


def main() -> None:
    """Train for --steps optimizer steps, whatever nodes come and go."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("output"), help="for checkpoints")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--save-every-s", type=float, default=60.0, help="between checkpoints")
    arguments = parser.parse_args()

    with elastic.alone():
        accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
    model = accelerator.prepare_model(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    trainer = elastic.Trainer(
        model,
        optimizer,
        checkpoint=arguments.folder,
        checkpoint_every_s=arguments.save_every_s,
    )
    loader = trainer.loader(
        made_data(),
        batch_size=32,
        epochs=sys.maxsize,
        until=lambda: trainer.cursor.step >= arguments.steps,
    )
    for x, y in loader:
        with trainer.step() as step:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(trainer.ddp(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        if step.committed and trainer.rank == 0 and trainer.cursor.step % 1000 == 0:
            print(f"step={trainer.cursor.step} world={trainer.world} loss={loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
