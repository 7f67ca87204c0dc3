"""What the fork server does once, before the first worker: import all that training imports.

Only the fork server imports this module. It computes nothing and does not use CUDA, as neither
threads nor CUDA survive a fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import warnings

# The server begins as ``python -c``: a random.py in the current folder would be found first.
sys.path = [folder for folder in sys.path if folder]

from bftrainer_slurm.elastic.processes import adopt_orphans, end_with_parent  # noqa: E402

end_with_parent()  # when the agent is killed, nothing else would end the server and its workers
adopt_orphans()  # what a script leaves behind: so the agent finds it, see ``warm.left_over``
warnings.filterwarnings("ignore", message="forkserver: waitpid returned unexpected pid")

# DDP imports torch._dynamo when it is made, and torchrun's workers import torchrun.
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

_given = {**os.environ}
gc.disable()  # it would take a third of the time, and imports leave hardly any garbage
try:
    for _name in _MODULES:
        with contextlib.suppress(ImportError):  # other versions of torch may not have it
            importlib.import_module(_name)
    for _name in os.environ.keys() - _given.keys():  # torch._dynamo names inductor's folder
        del os.environ[_name]  # as a script finds it when it begins
    for _name in imports.of_script(sys.argv):
        with contextlib.suppress(Exception):  # the script will say what is wrong
            imports.load(_name)
    # Modules that the user knows to be safe to fork: BFTRAINER_PRELOAD=torchvision,pandas
    for _name in filter(None, os.environ.get("BFTRAINER_PRELOAD", "").split(",")):
        importlib.import_module(_name)
finally:
    gc.freeze()  # never searched again
    gc.enable()

from bftrainer_slurm.elastic.rendezvous import script  # noqa: E402
from bftrainer_slurm.elastic.steps import count  # noqa: E402
from bftrainer_slurm.elastic.torch_private import keep_groups  # noqa: E402

count()
script.take_over_run_path()
keep_groups()
gc.freeze()  # else a worker's first garbage collection copies every page with objects
