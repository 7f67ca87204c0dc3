"""The child process that solves: one problem a line on stdin, answers in lines on stdout.

Each better plan is said as soon as it is found, so that a crash or a time-out loses none of them.

It ends when stdin does, so it outlives the planner that started it by one problem at most.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO


def main() -> None:
    """Answer until stdin ends; an answer that is an error says what was wrong."""
    # CBC writes to the process's stdout whatever it is told: keep the answers' channel for us.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads cost more than they bring here
    try:
        from bftrainer_slurm.planner import optimum  # here, so that its absence can be told
    except Exception as error:
        _write(answers, {"error": f"{error}; pip install 'bftrainer-slurm[controller]'"})
        return
    from bftrainer_slurm.planner.wire import from_wire

    _write(answers, {"ready": True})
    for line in sys.stdin:
        try:
            request = json.loads(line)
            optimal = False
            for found in optimum.incumbents(from_wire(request), request["time_limit_s"]):
                optimal = found.optimal
                _write(answers, {"shares": found.shares})
            _write(answers, {"optimal": optimal})
        except BrokenPipeError:
            return  # the planner has gone
        except Exception as error:
            _write(answers, {"error": f"{type(error).__name__}: {error}"})


def _write(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
