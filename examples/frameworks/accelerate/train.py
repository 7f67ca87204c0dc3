"""An accelerate loop under torchrun: every start goes on from the last saved state."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bftrainer_slurm import elastic


def made_data() -> TensorDataset:
    """Return points, and to which side of a made-up line they belong."""
    x = torch.randn(20_000, 64, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x[:, :8].sum(1) > 0).long())


def newest(folder: Path) -> Path | None:
    """Return the last state that was saved to its end."""
    saved = [path for path in folder.glob("state-*") if path.name[6:].isdecimal()]
    return max(saved, key=lambda path: int(path.name[6:]), default=None)


def save(accelerator: Accelerator, folder: Path, step: int) -> None:
    """Save beside, then rename: a node may be taken in the middle. All ranks call it."""
    beside = folder / f".state-{step}"
    accelerator.save_state(str(beside))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        old = newest(folder)
        if not (folder / f"state-{step}").exists():
            beside.rename(folder / f"state-{step}")
        if old is not None and old.name != f"state-{step}":
            shutil.rmtree(old, ignore_errors=True)


def main() -> None:
    """Train for --steps optimizer steps, whatever nodes come and go."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("output"), help="for saved states")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--save-every", type=int, default=50, help="steps between saved states")
    parser.add_argument("--save-when-told", action="store_true", help="save before nodes change")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)

    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(made_data(), batch_size=32, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step, last = 0, newest(arguments.folder)
    if last is not None:
        accelerator.load_state(str(last))
        step = int(last.name[6:])

    while step < arguments.steps:
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            told = arguments.save_when_told and elastic.must_save()
            if told or step % arguments.save_every == 0:
                save(accelerator, arguments.folder, step)
                accelerator.print(f"step={step} world={accelerator.num_processes} loss={loss:.3f}")
            if told:
                elastic.saved()
            if step >= arguments.steps:
                break
    accelerator.end_training()


if __name__ == "__main__":
    main()
