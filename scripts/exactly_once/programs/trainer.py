"""``elastic.Trainer``: rescales in process. ``--through=accelerate``: accelerate is in the loop."""

from __future__ import annotations

import torch

from bftrainer_slurm import elastic
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
    given = options("size", "through")
    data, model, record = Samples(given.samples), made_model(), Recording(given.record)
    backward = torch.autograd.backward
    if given.through:
        from accelerate import Accelerator  # not installed where only torch is tried

        with elastic.alone():
            accelerator = Accelerator(cpu=True)
        model, backward = accelerator.prepare_model(model), accelerator.backward
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    trainer = elastic.Trainer(
        model, optimizer, checkpoint=given.folder / "ck", checkpoint_every_s=1.0
    )
    asked = given.epochs * given.samples
    loader = trainer.loader(
        data, given.batch, given.epochs, batch="global" if given.size else "local"
    )
    for batch in loader:
        with trainer.step() as step:
            optimizer.zero_grad()
            optimizer.param_groups[0]["lr"] = RATE * (1 - trainer.cursor.samples / asked)
            # First: its part of the gradient counts, even if this rank is lost before it commits.
            rate, place = optimizer.param_groups[0]["lr"], (trainer.rank, trainer.world)
            number, life = trainer.cursor.step + 1, trainer.generation
            record.step(number, *place, rate, batch["numbers"].tolist(), life)
            predicted = trainer.ddp(batch["x"]).squeeze(-1)
            loss = torch.nn.functional.mse_loss(predicted, batch["labels"])
            compute(given)
            backward(loss)
            optimizer.step()
        if step.committed:
            record.done(number)
    if trainer.rank == 0:
        record.end(data.loss(model))


if __name__ == "__main__":
    main()
