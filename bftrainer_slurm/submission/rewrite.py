"""The rewriting: a tagged submission becomes a held job array of elements with one node each.

Runs nothing itself; how Slurm is asked, and what is done with the result, is the caller's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from bftrainer_slurm.constraint import ConstraintError, parse_constraint
from bftrainer_slurm.spec import (
    DEFAULT_MAX_GRACE_S,
    MAX_COMMENT,
    MAX_NODES,
    MAX_RECORD,
    Request,
    SpecError,
    TrainerRecord,
    format_comment,
    own_comment,
    parse_spec,
    read_node_list,
    read_partitions,
    with_own_comment,
)
from bftrainer_slurm.submission.directives import SubmissionError, minutes_of
from bftrainer_slurm.submission.node_counts import describe, node_counts
from bftrainer_slurm.submission.per_node import (
    NodeShare,
    WrittenOptions,
    asks_for_cores,
    has_part,
    node_share,
    part_note,
)
from bftrainer_slurm.submission.slurm_answers import Ask, check_nodes, without_singleton
from bftrainer_slurm.submission.user_array import files_of_task

_T = TypeVar("_T")

# Options that contradict a trainer, and what to do instead.
_REFUSED = {
    "nodefile": "the nodes change; write --constraint or --exclude instead of --nodefile",
    "hold": "a trainer is held until nodes are idle; leave --hold out",
    "licenses": "licences do not come back with a reclaimed node; leave --licenses out",
}
# Options that are taken away, and why.
_LEFT_OUT = {
    "time-min": "Slurm may cut a run short anyway",
    "prefer": "the plan chooses the nodes",
    "reservation": "a trainer runs on idle nodes, which belong to no reservation",
    "signal": "the limits of elements are short; SIGTERM comes when one has to end",
    "wait": "bftrainer submit ends once the trainer is submitted",  # sbatch itself waits
}
_LIMIT_NOTE = (
    "-t limits each stay on a node, not the training; squeue shows an earlier end of it, which "
    "moves: a script that stops by that end stops too soon"
)


@dataclass(frozen=True)
class Site:
    """What a site, or an owner's own controller, has decided for all trainers.

    ``max_array_size`` and ``max_elements`` (nodes of one trainer) are 0 where they are not known.
    """

    partition: str
    personal: bool = False
    qos: str = ""
    share: bool = False
    max_grace_s: float = DEFAULT_MAX_GRACE_S
    max_array_size: int = 0
    max_elements: int = 0


class Asked(NamedTuple):
    """What the user asks of sbatch.

    ``given`` are the options that count, by their long names, "" for one without a value.
    ``now_s`` is when (Unix seconds), and ``task`` the task of the user's own ``--array`` that this
    trainer is.
    """

    given: Mapping[str, str]
    written: WrittenOptions
    spec: str | None
    now_s: float
    task: int | None = None


@dataclass(frozen=True)
class Rewriting:
    """The options to set ("" for one without a value) and to take away, and what the user reads.

    ``environment`` is what srun reads in an element in place of the whole job's (None: unset).
    """

    record: TrainerRecord
    request: Request
    settings: dict[str, str]
    dropped: tuple[str, ...]
    environment: dict[str, str | None]
    notes: tuple[str, ...]


def rewrite(asked: Asked, site: Site, ask: Ask) -> Rewriting:
    """Return what becomes of a submission.

    Raises:
        SubmissionError: it cannot become a trainer; the message has the remedy.
    """
    given = asked.given
    _check_options(given, site)
    request = _read(parse_spec, asked.spec, site.max_grace_s, asked.now_s)
    record = _record(asked, site, request)
    check_size(record, site)
    share = node_share(given, asked.written)
    check_nodes(
        {**given, **share.settings},
        site.partition,
        ask,
        least=record.min_nodes,
        whole=not (site.share and has_part(given)),
        of_cores=site.share and asks_for_cores(given),
    )
    settings = {
        **_element_settings(given, site, record),
        **share.settings,
        **({} if asked.task is None else files_of_task(given, asked.task)),
    }
    left_out = tuple(name for name in ("nodelist", *_LEFT_OUT) if name in given)
    dependency = without_singleton(given, ask)
    if dependency:
        settings["dependency"] = dependency
    elif dependency is not None:
        left_out += ("dependency",)
    return Rewriting(
        record,
        request,
        settings,
        dropped=share.dropped + tuple(name for name in left_out if name not in settings),
        environment=share.environment,
        notes=_notes(given, site, record, share),
    )


def check_size(record: TrainerRecord, site: Site) -> None:
    """Refuse more nodes than an array may have, or one trainer of slurmctld's job table.

    Raises:
        SubmissionError: in one line, with the most that may be asked for.
    """
    limits = []
    if site.max_array_size:  # one task is the anchor
        limits.append((site.max_array_size - 1, "this cluster's job arrays allow (MaxArraySize)"))
    if site.max_elements:
        table = "one trainer may hold of slurmctld's job table here (max_elements)"
        limits.append((site.max_elements, table))
    limit, what = min(limits, default=(MAX_NODES, ""))
    least, most = record.min_nodes, record.max_nodes
    if most > limit:
        raise SubmissionError(
            f"-N {least}-{most} is more than {what}; write at most -N {min(least, limit)}-{limit}"
        )


def _check_options(given: Mapping[str, str], site: Site) -> None:
    """Refuse options and values that contradict a trainer."""
    for name, instead in _REFUSED.items():
        if name in given:
            raise SubmissionError(instead)
    if "constraint" in given:
        try:
            parse_constraint(given["constraint"])
        except ConstraintError as error:
            raise SubmissionError(str(error)) from error
    if site.qos and given.get("qos", site.qos) != site.qos:
        raise SubmissionError(
            f"trainers run in QOS {site.qos}; leave --qos out (and SBATCH_QOS unset) or write "
            f"--qos={site.qos}"
        )


def _record(asked: Asked, site: Site, request: Request) -> TrainerRecord:
    given = asked.given
    least, most = node_counts(given.get("nodes"), request)
    return TrainerRecord(
        *(least, most, request.spec, _minutes(given.get("time"))),
        personal=site.personal,
        partitions=_partitions(given, site),
        nodes=_node_list(given),
        sizes=tuple(size for size in request.sizes if least <= size <= most),
        step=request.step,
        task=asked.task,
        id=os.urandom(4).hex(),
    )


def _partitions(given: Mapping[str, str], site: Site) -> tuple[str, ...]:
    """The partitions to whose nodes the user restricts the trainer; none if to its own."""
    wished = given.get("partition", "")
    if not wished or site.partition in wished.split(","):
        return ()
    remedy = "; write names with commas between"
    return _read(read_partitions, wished, option="--partition: ", remedy=remedy)


def _node_list(given: Mapping[str, str]) -> str:
    if "nodelist" not in given:
        return ""
    remedy = "; write it as n[1-3,5], or leave it out"
    return _read(read_node_list, given["nodelist"], option="--nodelist: ", remedy=remedy)


def _minutes(time: str | None) -> int | None:
    minutes = minutes_of(time) if time else None
    if minutes is not None and minutes > MAX_NODES:
        raise SubmissionError(
            f"--time is more than {MAX_NODES // 60 // 24} days; write less, or leave it out: "
            "then an element may run for as long as the partition allows"
        )
    return minutes


def _element_settings(
    given: Mapping[str, str], site: Site, record: TrainerRecord
) -> dict[str, str]:
    """The options of a job of one node that waits until the controller releases it."""
    settings = {
        "nodes": "1",
        "array": f"0-{record.anchor}",
        "hold": "",
        "partition": site.partition,
        "requeue": "",
        "open-mode": "append",
        "exclusive": "exclusive",
        "time-min": "1",
        "comment": _comment(given, record),
    }
    if site.share and has_part(given):
        del settings["exclusive"]
    if site.qos:
        settings["qos"] = site.qos
    return settings


def _comment(given: Mapping[str, str], record: TrainerRecord) -> str:
    """The record, and after it the user's own comment."""
    text, own = format_comment(record), given.get("comment", "")
    if len(text) > MAX_RECORD:
        raise SubmissionError(
            "the lists of --partition and --nodelist are too long for the trainer's record; "
            "write shorter ones, as n[1-100]"
        )
    comment = with_own_comment(text, own)
    if own_comment(comment) != own:
        raise SubmissionError(
            f"--comment is too long: Slurm takes {MAX_COMMENT} characters, and the trainer's "
            f"record is {len(text) + 1} of them"
        )
    return comment


def _notes(
    given: Mapping[str, str], site: Site, record: TrainerRecord, share: NodeShare
) -> tuple[str, ...]:
    task = f"SLURM_ARRAY_TASK_ID is {record.task}, the one task of --array"
    return (
        describe(record) + (part_note(given) if site.share else ""),
        *(() if record.minutes is None else (_LIMIT_NOTE,)),
        *(() if record.task is None else (task,)),
        *(f"--{name} is left out: {why}" for name, why in _LEFT_OUT.items() if name in given),
    )


def _read(reader: Callable[..., _T], *words: object, option: str = "", remedy: str = "") -> _T:
    """Call a reader of the grammar; its error becomes a refusal that names the option."""
    try:
        return reader(*words)
    except SpecError as error:
        raise SubmissionError(f"{option}{error}{remedy}") from error
