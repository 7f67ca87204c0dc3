"""All faults by name."""

from __future__ import annotations

from scripts.chaos_suite.faults import daemons, nodes, processes, slurm, solver, state, users
from scripts.chaos_suite.faults.fault import Fault

CATALOGUE: dict[str, Fault] = {
    one.name: one
    for module in (daemons, processes, nodes, state, slurm, users, solver)
    for one in module.FAULTS
}

# Those that may come while another one is under way.
SECONDS = ("controller-killed", "keeper-killed", "worker-killed", "element-killed", "solver-killed")
