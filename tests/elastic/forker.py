"""Runs scripts as an element's torchrun does: in warm workers.

Reads lines {"argv": [...], "output": FILE} and answers each with {"failure": ..., "code": ...}.
"""

import json
import sys
import tempfile

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes

from bftrainer_slurm.elastic.rendezvous import warm
from bftrainer_slurm.elastic.rendezvous.failures import LastFailure


def main() -> None:
    failure = LastFailure()
    warm.start().wait()
    for line in sys.stdin:
        case = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            workers = start_processes(
                name="trainer",
                entrypoint=sys.executable,
                args={0: ("-u", *case["argv"])},
                envs={0: {"LOCAL_RANK": "0"} | case["environment"]},
                logs_specs=DefaultLogsSpecs(folder, redirects=Std.ALL),
            )
            result = workers.wait(600, period=0.02)
            with open(workers.stdouts[0]) as output:  # noqa: PTH123
                answer = {"output": output.read(), "code": None, "failure": ""}
            if result is None:
                answer["code"] = "hangs"
            elif result.is_failed():
                answer |= {"code": result.failures[0].exitcode, "failure": failure.take()}
            workers.close()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
