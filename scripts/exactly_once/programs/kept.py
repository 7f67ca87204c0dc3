"""Plain DDP with its state in memory, its place in samples, as in docs/frameworks/memory.md."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from bftrainer_slurm import elastic
from scripts.exactly_once.programs.recording import RATE, Work, loss_of


def main() -> None:
    """Train all epochs."""
    work = Work()
    given, model = work.given, work.model
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    sampler: DistributedSampler[dict[str, torch.Tensor]] = DistributedSampler(work.data)
    loader = DataLoader(work.data, batch_size=given.batch, sampler=sampler)
    steps, together = given.epochs * len(loader), given.batch * world
    path = work.folder / "checkpoint.pt"
    snapshot = elastic.Snapshot(path, disk_every_s=1.0, model=model, optimizer=optimizer)
    place = snapshot.load() or {"step": 0, "epoch": 0, "trained": 0}
    step, epoch, trained = place["step"], place["epoch"], place["trained"]
    at = epoch * len(loader) + trained // together
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps, last_epoch=at - 1)
    parallel = DistributedDataParallel(model)
    while epoch < given.epochs:
        sampler.set_epoch(epoch)
        for number, batch in enumerate(loader):
            if number < trained // together:
                continue
            optimizer.zero_grad()
            work.compute()
            work.step(step + 1, optimizer, batch["numbers"])
            loss_of(parallel, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            scheduler.step()
            step += 1
            snapshot.save({"step": step, "epoch": epoch, "trained": (number + 1) * together})
            if elastic.must_save():
                elastic.saved()
        epoch, trained = epoch + 1, 0
    work.end(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
