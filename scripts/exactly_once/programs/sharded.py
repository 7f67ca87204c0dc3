"""``elastic.ShardedTrainer``: FSDP2 that rescales in process."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from bftrainer_slurm import elastic
from scripts.exactly_once.programs.recording import RATE, Work, loss_of


def main() -> None:
    """Train all epochs."""
    work = Work("size")
    given = work.given

    def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return the model, sharded over a mesh, and its optimizer."""
        torch.manual_seed(0)  # the same each time
        module = nn.Sequential(nn.Linear(4, 1))
        fully_shard(module, mesh=mesh)
        return module, torch.optim.SGD(module.parameters(), lr=RATE)

    trainer = elastic.ShardedTrainer(
        build, checkpoint=given.folder / "ck", checkpoint_every=given.save_every, rate="none"
    )
    asked = given.epochs * given.samples
    loader = trainer.loader(
        work.data, given.batch, given.epochs, batch="global" if given.size else "local"
    )
    for batch in loader:
        with trainer.step() as step:
            optimizer = trainer.optimizer
            optimizer.zero_grad()
            rate = RATE * (1 - trainer.cursor.samples / asked)
            optimizer.param_groups[0]["lr"] = rate
            # First: its part of the gradient counts, even if this rank is lost before it commits.
            number, life = trainer.cursor.step + 1, trainer.generation
            numbers = batch["numbers"].tolist()
            work.record.step(number, trainer.rank, trainer.world, rate, numbers, life)
            loss = loss_of(trainer.model, batch)
            work.compute()
            trainer.backward(loss)
            optimizer.step()
        if step.committed:
            work.record.done(number)
    whole = nn.Linear(4, 1)
    state = trainer.model.state_dict()
    whole.load_state_dict({name[2:]: one.full_tensor() for name, one in state.items()})  # of "0."
    if trainer.rank == 0:
        work.record.end(work.data.loss(whole))


if __name__ == "__main__":
    main()
