"""All faults by name."""

from __future__ import annotations

from scripts.chaos_suite.faults import nodes, processes, slurm, state, users
from scripts.chaos_suite.faults.fault import Fault

CATALOGUE: dict[str, Fault] = {
    one.name: one for module in (processes, nodes, state, slurm, users) for one in module.FAULTS
}

# Those that may come while another one is under way.
SECONDS = ("controller-killed", "keeper-killed", "worker-killed", "element-killed", "solver-killed")
