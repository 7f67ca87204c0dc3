"""DDP with torchdata's StatefulDataLoader, whose state is a part of rank 0's snapshot."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from scripts.exactly_once.programs.recording import RATE, Work, loss_of, save


def main() -> None:
    """Train all epochs."""
    work = Work()
    given, data, model = work.given, work.data, work.model
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    sampler: DistributedSampler[dict[str, torch.Tensor]] = DistributedSampler(data)
    loader = StatefulDataLoader(data, given.batch, sampler=sampler)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, given.epochs * len(loader))
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    step = first = 0
    path = work.folder / "snapshot.pt"
    if path.exists():
        snapshot = torch.load(path, weights_only=False)
        for name, one in parts.items():
            one.load_state_dict(snapshot[name])
        step, first = snapshot["step"], snapshot["epoch"]
    parallel = DistributedDataParallel(model)
    for epoch in range(first, given.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            work.compute()
            work.step(step + 1, optimizer, batch["numbers"])
            loss_of(parallel, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            scheduler.step()
            step += 1
            if step % given.save_every == 0 and rank == 0:
                states = {name: one.state_dict() for name, one in parts.items()}
                save(path, states | {"step": step, "epoch": epoch})
    work.end(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
