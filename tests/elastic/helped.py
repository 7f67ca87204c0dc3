"""ddp.py with two helpers in sessions of their own that ignore SIGTERM; one's parent ends at once.

Each of them writes a file FOLDER/helper.NODE.PID.
"""

import os
import subprocess
import sys

from ddp import main  # type: ignore[import-not-found]

_HELPER = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(f"helper.{os.environ['SLURMD_NODENAME']}.{os.getpid()}").touch()
print(flush=True)
time.sleep(600)
"""


def _start_helper() -> None:
    helper = subprocess.Popen(
        [sys.executable, "-c", _HELPER], stdout=subprocess.PIPE, start_new_session=True
    )
    assert helper.stdout is not None
    helper.stdout.readline()


if __name__ == "__main__":
    _start_helper()
    if (between := os.fork()) == 0:
        _start_helper()
        os._exit(0)
    os.waitpid(between, 0)
    main()
