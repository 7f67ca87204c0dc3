"""Throughput curves that nobody has to supply: measured points, a fitted law between them.

``fit`` turns measurements into a posterior; ``planning_curves`` is what a plan uses of it.
"""

from bftrainer_slurm.planner.curves.fit import Fit, fit
from bftrainer_slurm.planner.curves.measurement import Measurement
from bftrainer_slurm.planner.curves.planning import Standing, planning_curves

__all__ = ["Fit", "Measurement", "Standing", "fit", "planning_curves"]
