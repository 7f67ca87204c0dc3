"""All faults by name."""

from __future__ import annotations

from scripts.chaos_suite.faults import nodes, processes, slurm, state, users
from scripts.chaos_suite.faults.fault import Fault

CATALOGUE: dict[str, Fault] = {
    **processes.FAULTS,
    **nodes.FAULTS,
    **state.FAULTS,
    **slurm.FAULTS,
    **users.FAULTS,
}

# Those that may come while another one is under way.
SECONDS = ("controller-killed", "keeper-killed", "worker-killed", "element-killed", "solver-killed")
