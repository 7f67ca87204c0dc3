"""FSDP2 with torch.distributed.checkpoint; it skips as many batches as were trained.

``--unit=samples`` writes down the samples of the epoch in place of the batches, and skips these.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader, DistributedSampler

from scripts.exactly_once.programs.recording import RATE, Place, Work, loss_of


def main() -> None:
    """Train all epochs."""
    work = Work("unit")
    given, data, model = work.given, work.data, work.model
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    module = nn.Sequential(model)
    fully_shard(module, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    sampler: DistributedSampler[dict[str, torch.Tensor]] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=given.batch, sampler=sampler)
    steps, by_samples = given.epochs * len(loader), given.unit == "samples"
    together = given.batch * world if by_samples else 1
    scheduler = LinearLR(optimizer, 1.0, 0.0, steps)
    place = Place()

    def states() -> dict[str, Any]:
        pair = dict(zip(("model", "optimizer"), get_state_dict(module, optimizer), strict=True))
        return pair | {"place": place} | ({} if by_samples else {"scheduler": scheduler})

    paths = [work.newest()]
    dist.broadcast_object_list(paths)  # rank 0's look counts
    if paths[0] is not None:
        found = states()
        load(found, checkpoint_id=paths[0])
        both = {"model_state_dict": found["model"], "optim_state_dict": found["optimizer"]}
        set_state_dict(module, optimizer, **both)
        if by_samples:
            at = place.epoch * len(loader) + place.trained // together
            scheduler = LinearLR(optimizer, 1.0, 0.0, steps, last_epoch=at - 1)
    for epoch in range(place.epoch, given.epochs):
        sampler.set_epoch(epoch)
        for number, batch in enumerate(loader):
            if number < place.trained // together:
                continue
            optimizer.zero_grad()
            work.compute()
            work.step(place.step + 1, optimizer, batch["numbers"])
            loss_of(module, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            scheduler.step()
            place.step, place.epoch, place.trained = place.step + 1, epoch, (number + 1) * together
            if place.step % given.save_every == 0:
                beside = work.folder / f".step-{place.step}"
                save(states(), checkpoint_id=beside)
                if rank == 0 and not (work.folder / f"step-{place.step}").exists():
                    beside.rename(work.folder / f"step-{place.step}")
        place.trained = 0
    whole = nn.Linear(4, 1)
    full = {name: one.full_tensor() for name, one in model.state_dict().items()}
    whole.load_state_dict(full)
    work.end(whole)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
