"""An accelerate loop with save_state, load_state and skip_first_batches, as its documentation."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from scripts.exactly_once.programs.recording import (
    RATE,
    Recording,
    Samples,
    compute,
    made_model,
    options,
)


def main() -> None:
    """Train all epochs."""
    given = options()
    accelerator = Accelerator(cpu=True)
    data, record = Samples(given.samples), Recording(given.record)
    model = made_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    loader = DataLoader(data, batch_size=given.batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, given.epochs * len(loader))
    accelerator.register_for_checkpointing(scheduler)
    saved = [path for path in given.folder.glob("step_*") if path.name[5:].isdecimal()]
    step = first = skip = 0
    if saved:
        last = max(saved, key=lambda path: int(path.name[5:]))
        accelerator.load_state(str(last))
        step = int(last.name[5:])
        first, skip = divmod(step, len(loader))
    for epoch in range(first, given.epochs):
        loader.set_epoch(epoch)
        left = loader
        if epoch == first and skip:
            left = accelerator.skip_first_batches(loader, skip)
        for batch in left:
            optimizer.zero_grad()
            predicted = model(batch["x"]).squeeze(-1)
            accelerator.backward(torch.nn.functional.mse_loss(predicted, batch["labels"]))
            compute(given)
            rate = optimizer.param_groups[0]["lr"]
            optimizer.step()
            scheduler.step()
            step += 1
            rank, world = accelerator.process_index, accelerator.num_processes
            record.step(step, rank, world, rate, batch["numbers"].tolist())
            if step % given.save_every == 0:
                beside = given.folder / f".step_{step}"
                accelerator.save_state(str(beside))
                accelerator.wait_for_everyone()
                if rank == 0 and not (given.folder / f"step_{step}").exists():
                    beside.rename(given.folder / f"step_{step}")
    if accelerator.is_main_process:
        record.end(data.loss(accelerator.unwrap_model(model)))
    accelerator.end_training()


if __name__ == "__main__":
    main()
