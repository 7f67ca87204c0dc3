"""The child process that solves: one problem a line on stdin, one answer a line on stdout.

It ends when stdin does, so it never outlives the planner that started it.
"""

from __future__ import annotations

import json
import os
import sys

from bftrainer_slurm.planner.milp import solve
from bftrainer_slurm.planner.wire import from_wire


def main() -> None:
    """Answer until stdin ends."""
    # CBC writes to the process's stdout whatever it is told: keep the answers' channel for us.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    answers.write("ready\n")
    for line in sys.stdin:
        document = json.loads(line)
        answer = solve(from_wire(document), document["time_limit_s"])
        answers.write(json.dumps({"counts": answer.counts, "optimal": answer.optimal}) + "\n")


if __name__ == "__main__":
    main()
