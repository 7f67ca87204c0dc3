"""Who works, and who hangs, by the kernel's account of a thread, on a machine that is too busy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# One processor for two, of which the other one gets nearly all: 97 of 100 by their priorities.
STARVED = """
import os, sys, time
from bftrainer_slurm.keeper import effort
effort.WORK_S = 0.5
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
until_s = time.monotonic() + 60
if not (other := os.fork()):
    while time.monotonic() < until_s:
        pass
    os._exit(0)
os.nice(15)
one, said = effort.Effort(), 0
for _ in range(8):
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < effort.WORK_S:
        %s
    said += one.has_worked(time.monotonic())
os.kill(other, 9)
print(said)
"""


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not say it")
@pytest.mark.parametrize(
    ("what", "works"),
    [("sum(range(10_000))", True), ("time.sleep(0.001)", False), ("time.sleep(0.1)", False)],
)
def test_who_computes_works_though_others_have_its_processor_and_who_sleeps_hangs(
    what: str, works: bool
) -> None:
    said = subprocess.run(
        [sys.executable, "-c", STARVED % what], check=True, capture_output=True, timeout=300
    )
    assert (int(said.stdout) >= 4) is works  # of 8: a look may count what was waited before
