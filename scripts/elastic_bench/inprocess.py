"""The same training as ``plain``, but its processes stay while ranks come and go."""

from __future__ import annotations

from bftrainer_slurm import elastic
from scripts.elastic_bench.workload import StepLog, Workload, arguments


def main() -> None:
    """Train until somebody ends it."""
    options = arguments()
    work = Workload(options.model, options.compute)
    trainer = elastic.Trainer(work.model, work.optimizer, rate="none")
    log = StepLog(options.folder, work.model)
    for images, labels in trainer.loader(work.data, work.batch, 1_000_000_000):
        with trainer.step() as step:
            work.optimizer.zero_grad()
            work.train(trainer.ddp, images, labels)
            work.optimizer.step()
        if step.committed:
            log.write(trainer.cursor.step, trainer.world)


if __name__ == "__main__":
    main()
