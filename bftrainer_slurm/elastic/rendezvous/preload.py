"""What the fork server does once, before the first worker: import all that training imports.

Only imported there. It computes nothing and leaves CUDA alone: neither survives a fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys

# The server begins as ``python -c``: a random.py in the current folder would be found first.
sys.path = [folder for folder in sys.path if folder]

from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]  # noqa: E402

# Nobody else would end it, and its workers, when the agent is killed.
_prctl_pr_set_pdeathsig(signal.SIGKILL)

# DDP imports torch._dynamo when it is made, and torchrun's workers torchrun itself.
_MODULES = (
    "torch",
    "torch._dynamo",
    "torch.distributed.run",
    "torch.nn.parallel",
    "torch.optim.lr_scheduler",
    "torch.profiler._cupti_monitor",
    "torch.utils.data",
    "torch.utils.serialization.config",
)

from bftrainer_slurm.elastic.rendezvous import imports  # noqa: E402

for _name in _MODULES:
    with contextlib.suppress(ImportError):  # another torch has them elsewhere
        importlib.import_module(_name)
for _name in imports.of_script(sys.argv):
    with contextlib.suppress(Exception):  # the script will say what is wrong
        imports.load(_name)
# What the user knows to be safe to fork: BFTRAINER_PRELOAD=torchvision,pandas
for _name in filter(None, os.environ.get("BFTRAINER_PRELOAD", "").split(",")):
    importlib.import_module(_name)

from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402

from bftrainer_slurm.elastic import steps  # noqa: E402
from bftrainer_slurm.elastic.rendezvous import batches, process_groups, script  # noqa: E402


def _count(optimizer: object, args: object, kwargs: object) -> None:
    steps.of_this_process().by_optimizer(optimizer)


register_optimizer_step_post_hook(_count)
batches.tell_of_batches(lambda samples: steps.of_this_process().given(samples))
script.take_over_run_path()
process_groups.keep()
gc.collect()
gc.freeze()  # else a worker's first collection copies every page that objects lie in
