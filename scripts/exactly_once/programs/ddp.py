"""Plain DDP with a DistributedSampler; at its start it skips as many batches as were trained.

``--unit=samples`` writes down the samples of the epoch in place of the batches, and skips these.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from scripts.exactly_once.programs.recording import RATE, Work, loss_of, save


def main() -> None:
    """Train all epochs."""
    work = Work("unit")
    given, model = work.given, work.model
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    sampler: DistributedSampler[dict[str, torch.Tensor]] = DistributedSampler(work.data)
    loader = DataLoader(work.data, batch_size=given.batch, sampler=sampler)
    together = given.batch * world if given.unit == "samples" else 1
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, given.epochs * len(loader))
    step = epoch = trained = 0  # of the epoch: batches, or samples
    path = work.folder / "snapshot.pt"
    if path.exists():
        snapshot = torch.load(path)
        model.load_state_dict(snapshot["model"])
        optimizer.load_state_dict(snapshot["optimizer"])
        scheduler.load_state_dict(snapshot["scheduler"])
        step, epoch, trained = snapshot["step"], snapshot["epoch"], snapshot["trained"]
        if given.unit == "samples":
            at = epoch * len(loader) + trained // together
            scheduler = torch.optim.lr_scheduler.LinearLR(
                optimizer, 1.0, 0.0, given.epochs * len(loader), last_epoch=at - 1
            )
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
            if step % given.save_every == 0 and rank == 0:
                states = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
                snapshot = {name: one.state_dict() for name, one in states.items()}  # type: ignore[attr-defined]
                place = {"step": step, "epoch": epoch, "trained": (number + 1) * together}
                save(path, snapshot | place)
        epoch, trained = epoch + 1, 0
    work.end(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
