"""The numbers of nodes that a trainer allows: ``-N``, and keys of ``--bftrainer``."""

from __future__ import annotations

import re

from bftrainer_slurm.spec import MAX_NODES, Request, TrainerRecord
from bftrainer_slurm.submission.directives import SubmissionError
from bftrainer_slurm.words import either

_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?\Z", re.ASCII)


def node_counts(nodes: str | None, request: Request) -> tuple[int, int]:
    """Read ``-N`` with ``min=``, ``sizes=`` and ``step=``; return the fewest and the most nodes.

    Raises:
        SubmissionError: the numbers contradict each other; the message has them.
    """
    if nodes is None and not request.sizes:
        raise SubmissionError("how many nodes? write -N MAX or -N MIN-MAX, for example -N 2-16")
    least, most = (1, MAX_NODES) if nodes is None else _range(nodes)
    if request.min_nodes > most:
        raise SubmissionError(
            f"min={request.min_nodes} is more than the {most} nodes of -N; write a smaller min or "
            "a larger -N"
        )
    least = request.min_nodes or least
    if request.sizes:
        sizes = [size for size in request.sizes if least <= size <= most]
        if not sizes:
            raise SubmissionError(
                f"no size of sizes= is from {least} to {most} nodes; write other sizes or "
                "another -N"
            )
        return sizes[0], sizes[-1]
    step = request.step
    if -(-least // step) > most // step:
        raise SubmissionError(
            f"step={step}: no multiple of it is from {least} to {most} nodes; write another step "
            "or another -N"
        )
    return -(-least // step) * step, most // step * step


def describe(record: TrainerRecord) -> str:
    """Return which nodes a trainer may have, in words: ``1 to 4 nodes of partition gpu``."""
    least, most, sizes = record.min_nodes, record.max_nodes, record.sizes
    if len(sizes) > 1:
        count = either(sizes)
    else:
        count = f"{most}" if least == most else f"{least} to {most}"
    words = [f"{count} node{'s' if most > 1 else ''}"]
    if record.step > 1:
        words.append(f" in steps of {record.step}")
    if record.partitions:
        several = "s" if len(record.partitions) > 1 else ""
        words.append(f" of partition{several} {','.join(record.partitions)}")
    if record.nodes:
        words.append(f", only {record.nodes}")
    return "".join(words)


def _range(nodes: str) -> tuple[int, int]:
    """Read MIN and MAX. ``N`` means 1 to N, and so does ``N-N``: Slurm treats both alike."""
    if re.search("[,:]", nodes):
        raise SubmissionError(
            "-N takes one range here, not a list; write -N MIN-MAX, for example -N 2-16, or "
            "--bftrainer=sizes=2:4:8"
        )
    match = _RANGE.match(nodes)
    if not match:
        raise SubmissionError(
            f"-N {nodes[:40]} is not a range; write -N MIN-MAX, for example -N 2-16"
        )
    least, most = int(match[1]), int(match[2] or match[1])
    if most > MAX_NODES:
        raise SubmissionError(f"-N {nodes}: MAX is at most {MAX_NODES}")
    if not 1 <= least <= most:
        raise SubmissionError(
            f"-N {nodes}: MIN is at least 1 and not above MAX; write for example -N 2-16"
        )
    return (1 if least == most else least), most
