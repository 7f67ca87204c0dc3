"""A script that trains a sharded model, and writes down what it does, as ``inprocess`` does.

At the end rank 0 writes the whole weights to FOLDER/weights.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from bftrainer_slurm import elastic
from tests.elastic.inprocess import Numbers, forget_as_gloo_does, hang_in_last_save, hang_once


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 33), nn.Tanh(), nn.Linear(33, 1))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.Adam(model.parameters())


def main(folder: Path, given: dict[str, Any]) -> None:
    options: dict[str, Any] = {
        "size": 200,
        "epochs": 1,
        "every": 20,
        "copy_every": 1,
        "pause_s": 0.01,
        "awaits": [],  # numbers of ranks: until these have trained, in turn, a step takes a second
        "forget": False,
        "hang": "",  # at the end, as rank 0 in its "save", or as another before they "gather"
    } | given
    if options["forget"]:
        forget_as_gloo_does()
    if options["hang"] == "save":
        hang_in_last_save(folder)
    if options["hang"] == "gather":
        hang_once(folder, elastic.ShardedTrainer, "finish", lambda trainer: trainer.rank > 0)
    torch.set_num_threads(1)
    trainer = elastic.ShardedTrainer(
        build,
        checkpoint=folder / "checkpoints",
        checkpoint_every=options["every"],
        copy_every=options["copy_every"],
    )
    # The same steps whatever the world is, so that all runs end with the same weights.
    loader = trainer.loader(Numbers(options["size"]), 8, options["epochs"], batch="global")
    where = f"{os.environ.get('SLURMD_NODENAME', 'here')}.{os.environ.get('LOCAL_RANK', '0')}"
    awaited = list(options["awaits"])
    with (folder / f"{where}.{os.getpid()}").open("w", 1) as log:
        for x, numbers in loader:
            if [trainer.world] == awaited[:1]:
                del awaited[0]
            with trainer.step() as step:
                trainer.optimizer.zero_grad()
                goal = numbers.unsqueeze(1) / options["size"]
                loss = nn.functional.mse_loss(trainer.model(x), goal)
                place = trainer.generation, trainer.world, trainer.rank
                trained = json.dumps(numbers.tolist() if step.weight else [])
                number = trainer.cursor.step + 1
                print(time.monotonic(), *place, "tried", number, loader.epoch, trained, file=log)
                trainer.backward(loss)
                trainer.optimizer.step()
            if step.committed:
                print(time.monotonic(), *place, "done", number, file=log)
            time.sleep(1.0 if awaited else options["pause_s"])
    weights = get_model_state_dict(trainer.model, options=StateDictOptions(full_state_dict=True))
    if dist.get_rank() == 0:
        torch.save(weights, folder / "weights")
