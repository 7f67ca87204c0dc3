"""Starts the processes of one node, as DeepSpeed's launcher does: two "GPUs"."""

import os
import subprocess
import sys


def main() -> None:
    """Start them, and wait."""
    words = sys.argv[1:]
    while words[0].startswith("--"):
        words = words[1 if "=" in words[0] else 2 :]
    processes = []
    for rank in range(2):
        ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_SIZE": "2"}
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        command = [sys.executable, "-u", words[0], f"--local_rank={rank}", *words[1:]]
        processes.append(subprocess.Popen(command, env=os.environ | ranks | meeting))
    sys.exit(max(process.wait() for process in processes))
