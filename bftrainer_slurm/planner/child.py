"""The child process that solves: one problem per line on stdin, answers in lines on stdout.

It sends each better plan as soon as it finds it, so that a crash or a time-out loses none of them.

It ends when stdin ends, so it outlives the planner that started it by at most one problem.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import BinaryIO

import msgspec

from bftrainer_slurm.planner.instance import Answer, Request, numbers_of, problem_of


def main() -> None:
    """Answer until stdin ends; an error is an answer too, and says what was wrong."""
    # CBC always writes to the process's stdout: keep the channel of the answers for us.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads cost more than they bring here
    try:
        from bftrainer_slurm.planner import optimum  # here, so that we can report its absence
    except Exception as error:
        why = f"{error}; install bftrainer-slurm with its extra 'controller'"
        _write(answers, Answer(error=why))
        return
    gc.freeze()  # what was imported stays: a collection in the midst of a plan is not to look at it
    _write(answers, Answer(ready=True))
    for line in sys.stdin.buffer:
        try:
            request = msgspec.json.decode(line, type=Request)
            problem, optimal, bound, sent = problem_of(request.problem), False, None, None
            for found in optimum.incumbents(problem, request.time_limit_s):
                optimal, bound = found.optimal, found.bound
                if found.nodes is None:
                    answer = Answer(shares=found.shares)
                else:
                    answer = Answer(nodes=numbers_of(found.nodes))
                if answer != sent:
                    _write(answers, answer)
                sent = answer
            _write(answers, Answer(optimal=optimal, bound=bound))
        except BrokenPipeError:
            return  # the planner has gone
        except Exception as error:
            _write(answers, Answer(error=f"{type(error).__name__}: {error}"))


def _write(answers: BinaryIO, answer: Answer) -> None:
    answers.write(msgspec.json.encode(answer) + b"\n")


if __name__ == "__main__":
    main()
