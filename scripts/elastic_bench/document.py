"""The results as JSON, with every single time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from scripts.elastic_bench.chaos import Chaos
from scripts.elastic_bench.endtoend import EndToEnd
from scripts.elastic_bench.measure import Measured
from scripts.elastic_bench.table import targets


def document(
    machine: str,
    pauses: Mapping[str, Sequence[Measured]],
    chaos: Sequence[Chaos],
    cluster: Sequence[EndToEnd],
) -> dict[str, Any]:
    """Return all of it; times are seconds, and ``pauses`` is by model."""
    return {
        "machine": machine,
        "pauses": {model: [asdict(one) for one in found] for model, found in pauses.items()},
        "targets": [
            asdict(one) | {"model": model, "met": one.met}
            for model, found in pauses.items()
            for one in targets(model, found)
        ],
        "chaos": [asdict(one) for one in chaos],
        "cluster": [asdict(one) for one in cluster],
    }
