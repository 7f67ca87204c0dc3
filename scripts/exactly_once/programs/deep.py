"""DeepSpeed under torchrun, on gloo; it skips as many batches as were trained.

``--stage=1`` spreads the optimizer's state over the ranks (ZeRO).
"""

from __future__ import annotations

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from scripts.exactly_once.programs.recording import RATE, Work, loss_of


def main() -> None:
    """Train all epochs."""
    work = Work("stage")
    given, data = work.given, work.data
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled now
    deepspeed.init_distributed(dist_backend="gloo")
    rank, world = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    sampler: DistributedSampler[dict[str, torch.Tensor]] = DistributedSampler(data, world, rank)
    loader = DataLoader(data, batch_size=given.batch, sampler=sampler)
    model = nn.Sequential(work.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, given.epochs * len(loader))
    settings = {
        "train_micro_batch_size_per_gpu": given.batch,
        "gradient_accumulation_steps": 1,
        "zero_optimization": {"stage": int(given.stage or 0)},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer, lr_scheduler=scheduler, config=settings
    )
    folder = work.folder / "deepspeed"
    step = first = batches = 0
    if (folder / "latest").exists():
        _, place = engine.load_checkpoint(str(folder))
        step, first, batches = place["step"], place["epoch"], place["batches"]
    for epoch in range(first, given.epochs):
        sampler.set_epoch(epoch)
        for number, batch in enumerate(loader):
            if number < batches:
                continue
            work.compute()
            work.step(step + 1, optimizer, batch["numbers"])
            engine.backward(loss_of(engine, batch))
            engine.step()
            step += 1
            if step % given.save_every == 0:
                place = {"step": step, "epoch": epoch, "batches": number + 1}
                engine.save_checkpoint(str(folder), client_state=place)
        batches = 0
    work.end(engine.module)


if __name__ == "__main__":
    main()
