"""A sharded model (FSDP2) under torchrun, saved with torch.distributed.checkpoint."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from bftrainer_slurm import elastic


def made_data() -> TensorDataset:
    """Return points, and to which side of a made-up line they belong."""
    x = torch.randn(20_000, 64, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x[:, :8].sum(1) > 0).long())


def newest(folder: Path) -> Path | None:
    """Return the last checkpoint that all ranks have written to its end."""
    saved = [path for path in folder.glob("step-*") if path.name[5:].isdecimal()]
    return max(saved, key=lambda path: int(path.name[5:]), default=None)


def save(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, step: int) -> None:
    """Save beside, then rename: a node may be taken in the middle. All ranks call it."""
    beside = folder / f".step-{step}"
    states = get_state_dict(model, optimizer)
    dcp.save(dict(zip(("model", "optimizer"), states, strict=True)), checkpoint_id=beside)
    if dist.get_rank() == 0:
        old = newest(folder)
        if not (folder / f"step-{step}").exists():
            beside.rename(folder / f"step-{step}")
        if old is not None and old.name != f"step-{step}":
            shutil.rmtree(old, ignore_errors=True)


def load(model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Take a checkpoint, by however many ranks it was written."""
    states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.load(states, checkpoint_id=path)
    set_state_dict(
        *(model, optimizer),
        model_state_dict=states["model"],
        optim_state_dict=states["optimizer"],
    )


def main() -> None:
    """Train for --steps optimizer steps, whatever nodes come and go."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("output"), help="for checkpoints")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--save-every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--save-when-told", action="store_true", help="save before nodes change")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)

    kind = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2)).to(kind)
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    paths = [newest(arguments.folder)]
    dist.broadcast_object_list(paths)  # rank 0's look counts
    step = 0
    if paths[0] is not None:
        load(model, optimizer, paths[0])
        step = int(paths[0].name[5:])

    dataset = made_data()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)
    while step < arguments.steps:
        sampler.set_epoch(step)  # the samples left of an epoch that was broken off are drawn anew
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to(kind)), y.to(kind))
            loss.backward()
            optimizer.step()
            step += 1
            told = arguments.save_when_told and elastic.must_save()
            if told or step % arguments.save_every == 0:
                save(model, optimizer, arguments.folder, step)
                if dist.get_rank() == 0:
                    world = dist.get_world_size()
                    print(f"step={step} world={world} loss={loss.item():.3f}", flush=True)
            if told:
                elastic.saved()
            if step >= arguments.steps:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
