"""A script that re-forms in process, and writes down what it does.

FOLDER/NODE.LOCAL_RANK.PID gets lines of time, generation, world and rank, with: ``tried STEP EPOCH
SAMPLES`` when this rank computes its part of a step, ``done STEP`` when it is committed. At the
end FOLDER/end.NODE.LOCAL_RANK gets the weights' digest. ``main`` says what can be chosen.
"""

import errno
import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import Dataset, IterableDataset

from bftrainer_slurm import elastic
from bftrainer_slurm.elastic import tries
from bftrainer_slurm.elastic.inprocess import collective
from bftrainer_slurm.elastic.inprocess.replica import Replica
from bftrainer_slurm.elastic.inprocess.sockets import Connections
from bftrainer_slurm.elastic.inprocess.transfer import flatten
from tests.elastic import fakenccl, strikes


class Numbers(Dataset[tuple[Tensor, int]]):
    """Samples that know their number."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        return torch.sin(torch.arange(16) * (number + 1.0)), number


class Stream(IterableDataset[tuple[Tensor, int]]):
    """The same, one after the other; its state is the next number."""

    def __init__(self, size: int) -> None:
        self._numbers = Numbers(size)
        self._next = 0

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        while self._next < len(self._numbers):
            self._next += 1
            yield self._numbers[self._next - 1]

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._next = state_dict["next"]


class Branches(nn.Module):
    """Two layers side by side; which one is used first is each process's own affair."""

    def __init__(self, width: int, swapped: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)])
        self._order = (1, 0) if swapped else (0, 1)

    def forward(self, x: Tensor) -> Tensor:
        one, other = (self.layers[place](x) for place in self._order)
        return one + other


def forget_as_gloo_does() -> None:
    """Let no collective of this process fail where its peer is frozen: gloo forgets a few so."""
    Connections.shut_down = lambda *_, **__: None  # type: ignore[method-assign]


def leave_out_a_word() -> None:
    """Let this process begin one collective less, as if its group had failed just then."""
    attempt, words = collective.Communicator.attempt, itertools.count()

    def attempt_or_fail(self: collective.Communicator, send: Any) -> None:
        if self.world > 1 and dist.get_rank() > 0 and next(words) == 3:
            self.fail(RuntimeError("gloo: left out"))
        attempt(self, send)

    collective.Communicator.attempt = attempt_or_fail  # type: ignore[method-assign]


def cut_off(times: int) -> None:
    """Let this process not reach its first peer so often."""
    left, reach = [None] * times, collective._reachable

    def reach_or_fail(endpoint: str) -> tuple[str, int]:
        if left:
            left.pop()
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        return reach(endpoint)

    collective._reachable = reach_or_fail


def hang_once(folder: Path, owner: type, name: str, where: Callable[[Any], bool]) -> None:
    """Let the first rank that calls this method hang in it; it says so in a file."""
    method = getattr(owner, name)

    def call_or_hang(self: Any) -> Any:
        if where(self) and not (folder / "hangs").exists():
            (folder / "hangs.new").write_text(os.environ["SLURMD_NODENAME"])
            (folder / "hangs.new").replace(folder / "hangs")
            time.sleep(600)
        return method(self)

    setattr(owner, name, call_or_hang)


def hang_in_last_save(folder: Path) -> None:
    hang_once(folder, Replica, "save_last", lambda replica: replica.cursor.step > 0)


def digest(*objects: Any) -> str:
    described, tensors = flatten([one.state_dict() for one in objects])
    parts = [tensor.numpy().tobytes() for tensor in (described, *tensors)]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def parts_of(x: Tensor, several: bool) -> list[Tensor]:
    """Return a batch, or its halves where each is enough for batch statistics."""
    return list(x.chunk(2)) if several and len(x) >= 4 else [x]


def stop_after_epoch(loader: Any, options: dict[str, Any]) -> bool:
    """Return whether rank 0 has found the file, on all ranks alike."""
    if options["stop_after_epoch"] is None or not loader.ends_epoch:
        return False
    stop = torch.tensor([Path(options["stop_after_epoch"]).exists()])
    dist.broadcast(stop, src=0)
    return bool(stop)


def backward(trainer: elastic.Trainer, scaler: torch.amp.GradScaler, x: Tensor, of: int) -> None:
    """Add the gradients of a part of a batch: of a mean over it all."""
    loss = nn.functional.mse_loss(trainer.ddp(x), torch.ones(len(x), 1), reduction="sum") / of
    scaler.scale(loss).backward()  # type: ignore[no-untyped-call]


def main(folder: Path, given: dict[str, Any]) -> None:
    options: dict[str, Any] = {
        "size": 1000,
        "epochs": 1,
        "batch_size": 4,
        "pause_s": 0.02,  # the processors are for all nodes
        "width": 32,
        "workers": 0,
        "checkpoint": None,
        "every_s": 0.2,
        "batch": "local",
        "stop_after_epoch": None,  # a file: end with the epoch once it is there
        "seed_weights": False,
        "fail_rank": None,
        "own": False,  # a collective in each step
        "left_out": False,  # rank 0's word, once on each other rank; then own ones of a byte follow
        "forget": False,
        "hang": False,  # in the last save
        "cut_off": 0,  # how often n1 cannot reach its first peer
        "give_up_s": 60.0,  # after how long it does so, if that does not end
        "norm": True,  # batch statistics are of a rank's own batch
        "stream": False,  # an iterable data set
        "swapped": None,  # a node on which two layers of the model are used the other way round
        "nccl": False,  # fakenccl's collectives, and what ``strikes`` says
        "several": False,  # optimizers and schedulers, parts of a batch, a scaler, an average
    } | given
    if options["forget"]:
        forget_as_gloo_does()
    tries.LEAST_S = options["give_up_s"]
    if os.environ.get("SLURMD_NODENAME") == "n1":
        cut_off(options["cut_off"])
    if options["hang"]:
        hang_in_last_save(folder)
    if options["left_out"]:
        leave_out_a_word()
    if options["nccl"]:
        fakenccl.use()
        fakenccl.told.append(strikes.Struck(folder).reach)
        options["ddp"] = {"gradient_as_bucket_view": True}
    torch.set_num_threads(1)
    # Else no two processes begin with the same weights.
    torch.manual_seed(0 if options["seed_weights"] else os.getpid())
    model = nn.Sequential(
        nn.Linear(16, options["width"]),
        nn.BatchNorm1d(options["width"]) if options["norm"] else nn.Identity(),
        nn.ReLU(),
        Branches(options["width"], os.environ.get("SLURMD_NODENAME") == options["swapped"])
        if options["swapped"]
        else nn.Linear(options["width"], options["width"]),
        nn.Linear(options["width"], 1),
    )
    several = options["several"]
    average = AveragedModel(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=50, enabled=several)
    optimizers: list[torch.optim.Optimizer] = [torch.optim.Adam(model.parameters())]
    if several:
        optimizers = [
            torch.optim.SGD(model[:4].parameters(), lr=0.001, momentum=0.9),
            torch.optim.Adam(model[4:].parameters()),
        ]
    schedulers = [torch.optim.lr_scheduler.StepLR(one, 100) for one in optimizers]
    others: dict[str, Any] = {f"scheduler_{place}": one for place, one in enumerate(schedulers)}
    others |= {"average": average, "scaler": scaler}
    trainer = elastic.Trainer(
        model,
        optimizers,
        **others,
        checkpoint=options["checkpoint"],
        checkpoint_every_s=options["every_s"],
        ddp=options.get("ddp"),
        nccl_in_process=options["nccl"],
    )
    loader = trainer.loader(
        (Stream if options["stream"] else Numbers)(options["size"]),
        options["batch_size"],
        options["epochs"],
        batch=options["batch"],
        num_workers=options["workers"],
    )
    where = f"{os.environ.get('SLURMD_NODENAME', 'here')}.{os.environ.get('LOCAL_RANK', '0')}"
    with (folder / f"{where}.{os.getpid()}").open("w", 1) as log:

        def write(*words: object) -> None:
            place = trainer.generation, dist.get_world_size(), dist.get_rank()
            print(time.monotonic(), *place, *words, file=log)

        for x, numbers in loader:
            with trainer.step() as step:
                for one in optimizers:
                    one.zero_grad()
                trained = numbers.tolist() if step.weight else []
                fakenccl.reach("forward")
                write("tried", trainer.cursor.step + 1, loader.epoch, json.dumps(trained))
                if options["fail_rank"] == dist.get_rank():
                    raise KeyError("this rank fails")
                if options["own"] and trainer.generation:
                    dist.all_reduce(torch.ones(1))
                *parts, last = parts_of(x, several)
                with trainer.ddp.no_sync():
                    for part in parts:
                        backward(trainer, scaler, part, len(x))
                backward(trainer, scaler, last, len(x))
                fakenccl.reach("backward")
                if options["left_out"] and trainer.generation:
                    dist.broadcast(torch.zeros(1, dtype=torch.uint8), src=0)
                stop = stop_after_epoch(loader, options)
                for one, scheduler in zip(optimizers, schedulers, strict=True):
                    scaler.step(one)
                    scheduler.step()
                fakenccl.reach("update")
                scaler.update()
                average.update_parameters(model)
            if step.committed:
                write("done", trainer.cursor.step)
                if stop and trainer.finish():
                    break
            time.sleep(options["pause_s"])
    torch.save(model.state_dict(), folder / f"weights.{where}")
    averaged = nn.ParameterList(average.parameters())  # its buffers are of this rank's last batch
    states = digest(model, averaged, scaler, *optimizers, *schedulers)
    (folder / f"end.{where}").write_text(f"{states} {trainer.cursor.samples}")
