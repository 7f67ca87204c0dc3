"""Plain DDP under torchrun with a snapshot: every start goes on from the last one."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from bftrainer_slurm import elastic


def made_data() -> TensorDataset:
    """Return points, and to which side of a made-up line they belong."""
    x = torch.randn(20_000, 64, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x[:, :8].sum(1) > 0).long())


def save(path: Path, snapshot: object) -> None:
    """Write beside the old snapshot, then rename: a node may be taken in the middle."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    torch.save(snapshot, beside)
    beside.replace(path)


def main() -> None:
    """Train for --steps optimizer steps, whatever nodes come and go."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("output"), help="for the snapshot")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--save-every", type=int, default=50, help="steps between snapshots")
    parser.add_argument("--save-when-told", action="store_true", help="save before nodes change")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    path = arguments.folder / "snapshot.pt"

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    if path.exists():
        snapshot = torch.load(path, weights_only=True)
        model.load_state_dict(snapshot["model"])
        optimizer.load_state_dict(snapshot["optimizer"])
        step = snapshot["step"]
    parallel = DistributedDataParallel(model)

    dataset = made_data()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)
    while step < arguments.steps:
        sampler.set_epoch(step)  # the samples left of an epoch that was broken off are drawn anew
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(x), y)
            loss.backward()
            optimizer.step()
            step += 1
            told = arguments.save_when_told and elastic.must_save()
            if (told or step % arguments.save_every == 0) and dist.get_rank() == 0:
                model_state, optimizer_state = model.state_dict(), optimizer.state_dict()
                save(path, {"model": model_state, "optimizer": optimizer_state, "step": step})
                print(f"step={step} world={dist.get_world_size()} loss={loss:.3f}", flush=True)
            if told:
                elastic.saved()
            if step >= arguments.steps:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
