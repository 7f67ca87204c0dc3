"""What ``assess`` and ``replay`` share about GPUs: options, refusals, and the planner for parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from bftrainer_slurm.cli.common import fail, fail_on
from bftrainer_slurm.cli.options import count, given_options
from bftrainer_slurm.planner.problem import PlanMaker
from bftrainer_slurm.replay.assessment.parts import Compared, FreeHours, compare, free_hours
from bftrainer_slurm.replay.logs.hardware import GpuUse
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.synthetic.gpus import TRACES
from bftrainer_slurm.replay.trainers import TrainerSpec
from bftrainer_slurm.spec import SpecError, parse_gpus
from bftrainer_slurm.words import counted

_PLAN_LIMIT_S = 120.0  # no plan is cut off: the same log gives the same figures
_LOOK_S = 30.0  # on parts of nodes without --look-every; as in assess


def _parse_sizes(
    _: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[int, ...], ...]:
    """Read the GPUs of an element, written as in ``gpus=``."""
    with fail_on(SpecError, begin="--element-gpus: "):
        return tuple(map(parse_gpus, texts))


gpus_per_node_option = click.option(
    "--gpus-per-node",
    help="GPUs of each node that has any, or of each node of a made-up cluster. "
    "[default: the most that jobs had at once; a made-up cluster: none]",
    **count("N", 1, 1000),
)
jobs_like_option = click.option(
    "--jobs-like",
    type=click.Choice(TRACES),
    default=TRACES[0],
    show_default=True,
    help="Published trace whose jobs those of a made-up GPU cluster are like.",
)
element_gpus_option = click.option(
    "--element-gpus",
    multiple=True,
    metavar="N[:N...]",
    callback=_parse_sizes,
    help="Replay trainers on parts of nodes too, with so many GPUs of each node, beside the same "
    "on whole nodes. 1:2:4: the plan chooses one while a trainer has no node. Given several times: "
    "in turn.",
)


def check_jobs_like(gpus_per_node: int | None) -> None:
    """Refuse ``--jobs-like`` without a made-up GPU cluster."""
    if "jobs_like" in given_options() and gpus_per_node is None:
        fail("--jobs-like is about a made-up GPU cluster; give its --gpus-per-node too")


def check_gpus(log: Log, element_gpus: tuple[tuple[int, ...], ...]) -> None:
    """Refuse elements that fit on no node of the log."""
    if not element_gpus:
        return
    if log.free_gpus is None:
        fail(
            "--element-gpus: the log does not tell which nodes have GPUs; it needs NodeList, and "
            "AllocTRES or ReqTRES with gres/gpu, which a site keeps with "
            "AccountingStorageTRES=gres/gpu (a made-up cluster: --gpus-per-node)"
        )
    most = int(log.free_gpus.has.max())
    for sizes in element_gpus:
        if sizes[-1] > most:
            given = ":".join(map(str, sizes))
            fail(f"--element-gpus {given}: no node has more than {counted(most, 'GPU')}")


@contextmanager
def parts_planner(element_gpus: tuple[tuple[int, ...], ...]) -> Iterator[PlanMaker | None]:
    """Start a planner if one is needed."""
    if not element_gpus:
        yield None
        return
    from bftrainer_slurm.planner.solver import Planner  # imports the solver

    with Planner(time_limit_s=_PLAN_LIMIT_S) as planner:
        planner.warm_up()
        yield planner


def compare_gpus(
    log: Log | None,
    trainers: tuple[TrainerSpec, ...],
    element_gpus: tuple[tuple[int, ...], ...],
    look_every_s: float,
) -> tuple[GpuUse | None, FreeHours | None, Compared | None]:
    """Return the use of GPUs, and figures of the trainers on whole nodes and on parts of nodes."""
    if log is None or log.free_gpus is None:
        return None, None, None
    compared, gpus = None, log.free_gpus
    with parts_planner(element_gpus) as planner:
        if planner is not None:
            every_s = look_every_s or _LOOK_S
            spans = [(gpus.from_s, gpus.to_s)]
            compared = compare(gpus, spans, trainers, element_gpus, planner, every_s)
    return log.gpu_use, free_hours(gpus), compared
