"""An accelerate loop with save_state, load_state and skip_first_batches, as its documentation.

``--unit=samples`` keeps epoch and samples in the checkpoint, and skips these, of an order that the
seed and the epoch tell.
"""

from __future__ import annotations

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader

from scripts.exactly_once.programs.recording import RATE, Place, Work, loss_of


def main() -> None:
    """Train all epochs."""
    work, place = Work("unit"), Place()
    given, data, model = work.given, work.data, work.model
    by_samples = given.unit == "samples"
    order = DataLoaderConfiguration(use_seedable_sampler=by_samples)
    accelerator = Accelerator(cpu=True, dataloader_config=order)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    loader = DataLoader(data, batch_size=given.batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    rank, world = accelerator.process_index, accelerator.num_processes
    steps = given.epochs * len(loader)
    scheduler = LinearLR(optimizer, 1.0, 0.0, steps)
    accelerator.register_for_checkpointing(place)
    if not by_samples:
        accelerator.register_for_checkpointing(scheduler)
    step = first = skip = 0
    if (last := work.newest()) is not None:
        accelerator.load_state(str(last))
        step = int(last.name[5:])
        first, skip = divmod(step, len(loader))
        if by_samples:
            first, skip = place.epoch, place.trained // (given.batch * world)
            scheduler = LinearLR(
                optimizer, 1.0, 0.0, steps, last_epoch=first * len(loader) + skip - 1
            )
    for epoch in range(first, given.epochs):
        loader.set_epoch(epoch)
        left, place.trained = loader, 0
        if epoch == first and skip:
            left = accelerator.skip_first_batches(loader, skip)
            place.trained = skip * given.batch * world
        place.epoch = epoch
        for batch in left:
            optimizer.zero_grad()
            work.compute()
            work.step(step + 1, optimizer, batch["numbers"])
            accelerator.backward(loss_of(model, batch))
            optimizer.step()
            scheduler.step()
            step += 1
            place.trained += given.batch * world
            if step % given.save_every == 0:
                beside = work.folder / f".step-{step}"
                accelerator.save_state(str(beside))
                accelerator.wait_for_everyone()
                if rank == 0 and not (work.folder / f"step-{step}").exists():
                    beside.rename(work.folder / f"step-{step}")
    work.end(accelerator.unwrap_model(model))
    accelerator.end_training()


if __name__ == "__main__":
    main()
