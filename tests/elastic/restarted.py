"""A script with a Trainer on a torch that lacks a private place; its log is as that of ``ddp``.

It saves each EVERY_S seconds; without that variable only when it is told to.
"""

import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from bftrainer_slurm.elastic import Trainer, torch_private


class Slow:
    """A part of the state that takes SAVE_S seconds to be saved."""

    def state_dict(self) -> dict[str, int]:
        time.sleep(float(os.environ.get("SAVE_S", "0")))
        return {}

    def load_state_dict(self, _: dict[str, int]) -> None:
        pass


def main() -> None:
    torch_private.missing = lambda: "torch.gone"  # type: ignore[assignment, misc]
    folder, node = Path(sys.argv[1]), os.environ["SLURMD_NODENAME"]
    every_s = float(os.environ.get("EVERY_S", "inf"))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    saved = folder / "saved"
    trainer = Trainer(model, optimizer, checkpoint=saved, checkpoint_every_s=every_s, slow=Slow())
    data = TensorDataset(torch.randn(1000, 4))
    with (folder / f"{node}.{os.getpid()}").open("w", 1) as log:
        for (batch,) in trainer.loader(data, batch_size=8, epochs=1000):
            with trainer.step():
                trainer.ddp(batch).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            print(time.monotonic(), trainer.world, trainer.cursor.step, file=log)
            time.sleep(0.2)  # the processors are for all nodes


if __name__ == "__main__":
    main()
