"""A status and a trainer of it as the controller publishes them, for tests of what is printed."""

from __future__ import annotations

import json
from typing import Any

from scripts.labcluster.stage import REPO

# As a controller published it once.
STATUS: dict[str, Any] = json.loads((REPO / "tests" / "data" / "status.json").read_text())
TRAINER: dict[str, Any] = {
    "array": 12,
    "name": "digits",
    "user": "alice",
    "state": "running",
    "nodes": ["n1", "n2"],
    "starting": ["n3"],
    "min_nodes": 1,
    "max_nodes": 4,
    "samples": 81_234.0,
    "samples_per_s": 1_234.5,
    "grew": 3,
    "shrank": 0,
    "reclaimed": 1,
}
ON_TIME: dict[str, Any] = {
    "state": "on time",
    "needs": 1_200.0,
    "late_s": None,
    "nodes": 2,
    "nodes_left": None,
}
TERMS: dict[str, Any] = {
    "key": "12",
    "had": 2,
    "nodes": 3,
    "least": 1,
    "most": 8,
    "limit": "others",
    "forward_s": 120.0,
    "pool": 8,
    "usable": 8,
    "free": 0,
    "sizes": [
        {"nodes": 3, "rate": 2.0, "rescale": 16.0, "worth": 224.0},
        {"nodes": 4, "rate": 2.5, "rescale": 16.0, "worth": 284.0},
    ],
    "better": 4,
    "gain": 60.0,
    "loss": 90.0,
    "price": 70.0,
    "time_s": 1000.0,
}
SHOWN: dict[str, Any] = TRAINER | {
    "plan": TERMS,
    **dict.fromkeys(("why", "node_hours", "start_minutes", "error")),
    "submit_s": 0.0,
    "weight": 1.0,
    "grace_s": 0.5,
    "wanted_samples": 2_000_000.0,
    "by_s": 1_796_112_000.0,
    "deadline": ON_TIME,
    "sizes": [],
    "step": 1,
    "partitions": [],
    "node_list": "",
    "node_s": 7200.0,
    "measures": {"loss": 0.25},
    "launcher": "srun python",
    "rescale": {"up": {"seconds": 0.12, "count": 4}, "down": {"seconds": 0.3, "count": 0}},
    "curve": {
        "unit": "samples",
        "points": [
            {"nodes": 1, "rate": 410.0, "measured": False},
            {"nodes": 2, "rate": 800.0, "measured": True},
            {"nodes": 4, "rate": 1500.0, "measured": False},
        ],
    },
    "failures": 0,
    "failed_on": [],
    "refused_reports": 0,
}
DOCUMENT: dict[str, Any] = {
    "down": None,
    "controller": {"error": None},
    "pool": STATUS["pool"] | {"nodes": 5, "used": 3, "planned": 3, "free": ["n4", "n5"]},
    "malformed": {},
    "trainers": [TRAINER],
}
