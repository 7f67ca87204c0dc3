"""``elastic.Trainer``: rescales in process. ``--through=accelerate``: accelerate is in the loop."""

from __future__ import annotations

import torch

from bftrainer_slurm import elastic
from scripts.exactly_once.programs.recording import RATE, Work, loss_of


def main() -> None:
    """Train all epochs."""
    work = Work("size", "through")
    given, model = work.given, work.model
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
        work.data, given.batch, given.epochs, batch="global" if given.size else "local"
    )
    for batch in loader:
        with trainer.step() as step:
            optimizer.zero_grad()
            optimizer.param_groups[0]["lr"] = RATE * (1 - trainer.cursor.samples / asked)
            # First: its part of the gradient counts, even if this rank is lost before it commits.
            rate, place = optimizer.param_groups[0]["lr"], (trainer.rank, trainer.world)
            number, life = trainer.cursor.step + 1, trainer.generation
            work.record.step(number, *place, rate, batch["numbers"].tolist(), life)
            loss = loss_of(trainer.ddp, batch)
            work.compute()
            backward(loss)
            optimizer.step()
        if step.committed:
            work.record.done(number)
    if trainer.rank == 0:
        work.record.end(work.data.loss(model))


if __name__ == "__main__":
    main()
