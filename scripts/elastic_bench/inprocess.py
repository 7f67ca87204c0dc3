"""The same training as ``plain``, but its processes stay when ranks come and go."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from bftrainer_slurm import elastic
from bftrainer_slurm.elastic.inprocess import nccl
from bftrainer_slurm.elastic.inprocess.collective import Communicator
from bftrainer_slurm.elastic.inprocess.replica import Replica
from scripts.elastic_bench.workload import StepLog, Workload, arguments


def main() -> None:
    """Train until somebody ends it."""
    options = arguments()
    work = Workload(options.model, options.compute)
    trainer = elastic.Trainer(work.model, work.optimizer, rate="none", nccl_in_process=True)
    if work.device == "cuda":
        _check_settings()
    log = StepLog(options.folder, work.model)
    _time_copies(log)
    for images, labels in trainer.loader(work.data, work.batch, 1_000_000_000):
        with trainer.step() as step:
            work.optimizer.zero_grad()
            work.train(trainer.ddp, images, labels)
            work.optimizer.step()
        if step.committed:
            log.write(trainer.cursor.step, trainer.world)


def _check_settings() -> None:
    others = [name for name, value in nccl.SETTINGS.items() if os.environ.get(name) != value]
    if others:
        sys.exit(f"Trainer has not set what NCCL needs: {', '.join(others)}")


def _time_copies(log: StepLog) -> None:
    """Log how long it takes to get a state from another rank's memory."""
    agree = Replica.agree

    def timed(common: Replica, group: Communicator, *what: Any) -> None:
        begin_s, is_new = time.monotonic(), common.version is None
        agree(common, group, *what)
        if is_new and group.rank > 0:
            log.copied(time.monotonic() - begin_s)

    Replica.agree = timed  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    main()
