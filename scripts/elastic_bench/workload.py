"""What all set-ups train, and how each step is logged; used inside the training processes."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

_SAMPLES = 1024


class Workload:
    """A model, its data, and the time that an accelerator would take for a step."""

    def __init__(self, model: str, compute_s: float) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        width, hidden, self.batch = {"tiny": (64, 128, 32), "large": (2500, 2500, 8)}[model]
        layers = [nn.Linear(width, hidden), nn.ReLU()]
        if model == "large":  # 25 million parameters
            layers += [layer for _ in range(3) for layer in (nn.Linear(2500, 2500), nn.ReLU())]
        self.model = nn.Sequential(*layers, nn.Linear(hidden, 10))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.data = TensorDataset(torch.randn(_SAMPLES, width), torch.randint(10, (_SAMPLES,)))
        self._compute_s = compute_s

    def samples(self, step: int, rank: int, world: int) -> tuple[Tensor, Tensor]:
        """Return the samples of one rank in one step."""
        first = (step * world + rank) * self.batch
        some = torch.arange(first, first + self.batch) % _SAMPLES
        images, labels = self.data[some]
        return images, labels

    def train(self, parallel: nn.Module, images: Tensor, labels: Tensor) -> None:
        """Leave the processor free for as long as an accelerator would, then compute gradients."""
        time.sleep(self._compute_s)
        loss = nn.functional.cross_entropy(parallel(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]


class StepLog:
    """Writes one line for each completed step, in one file per process; ``figures`` reads it."""

    def __init__(self, folder: Path, model: nn.Module) -> None:
        path = folder / "logs" / f"{os.environ['BENCH_NODE']}.{os.getpid()}.log"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._parameters = list(model.parameters())

    def write(self, step: int, world: int) -> None:
        """Write that ``world`` ranks have completed this step now."""
        now_s = time.monotonic()
        os.write(self._file, f"{now_s:.6f} {step} {world} {self._weights()}\n".encode())

    def _weights(self) -> int:
        """Return a sum over all bits, the same only for the same weights."""
        with torch.no_grad():
            return int(sum(one.view(torch.int32).sum() for one in self._parameters))


def arguments() -> argparse.Namespace:
    """Read a training script's command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", choices=("tiny", "large"), required=True)
    parser.add_argument("--compute", type=float, required=True)
    parser.add_argument("--save-every", type=float, required=True)
    return parser.parse_args()
