"""Plain DDP with a DistributedSampler; at its start it skips as many batches as were trained.

``--unit=samples`` writes down the samples of the epoch in place of the batches, and skips these.
``--keep=memory`` has the state in memory, as in docs/frameworks/memory.md, not in a file.
``--keep=loader``: torchdata's StatefulDataLoader, whose state is a part of rank 0's file.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader, DistributedSampler

from bftrainer_slurm import elastic
from scripts.exactly_once.programs.recording import RATE, Work, loss_of, save


def main() -> None:
    """Train all epochs."""
    work = Work("unit", "keep")
    given, model = work.given, work.model
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    sampler: DistributedSampler[dict[str, torch.Tensor]] = DistributedSampler(work.data)
    loader: Any = DataLoader(work.data, batch_size=given.batch, sampler=sampler)
    steps, by_samples = given.epochs * len(loader), given.unit == "samples"
    together = given.batch * world if by_samples else 1
    scheduler = LinearLR(optimizer, 1.0, 0.0, steps)
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    if given.keep == "loader":
        from torchdata.stateful_dataloader import StatefulDataLoader

        loader = parts["loader"] = StatefulDataLoader(work.data, given.batch, sampler=sampler)
    place = {"step": 0, "epoch": 0, "trained": 0}  # of the epoch: batches, or samples
    memory, path = None, work.folder / "checkpoint.pt"
    if given.keep == "memory":
        memory = elastic.Snapshot(path, disk_every_s=1.0, model=model, optimizer=optimizer)
        place = memory.load() or place
    elif path.exists():
        saved = torch.load(path, weights_only=False)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        place = saved["place"]
    step, epoch, trained = place["step"], place["epoch"], place["trained"]
    if by_samples:
        at = epoch * len(loader) + trained // together
        scheduler = LinearLR(optimizer, 1.0, 0.0, steps, last_epoch=at - 1)
        parts["scheduler"] = scheduler
    if given.keep == "loader":
        trained = 0  # it skips them by itself
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
            place = {"step": step, "epoch": epoch, "trained": (number + 1) * together}
            if memory is not None:
                memory.save(place)
                if elastic.must_save():
                    elastic.saved()
            elif step % given.save_every == 0 and rank == 0:
                save(
                    path, {name: one.state_dict() for name, one in parts.items()} | {"place": place}
                )
        epoch, trained = epoch + 1, 0
    work.end(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
