"""What can break: one small function a fault, and all of them by name."""

from __future__ import annotations

from tests.chaos.faults import processes, services, slurm
from tests.chaos.faults.fault import Fault

CATALOGUE: dict[str, Fault] = {**processes.FAULTS, **services.FAULTS, **slurm.FAULTS}

# Those that hit one element alone.
AIMED = ("agent-killed", "agent-terminated", "element-killed", "worker-frozen", "worker-killed")

# Those that may come on top of another one.
SECONDS = ("controller-killed", "keeper-killed", "worker-killed", "element-killed", "solver-killed")
