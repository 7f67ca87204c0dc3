"""Throughput curves from measurements: measured points, and a fitted law between them.

``fit`` turns measurements into a posterior. ``LatestFit`` keeps a trainer's until there is
news. ``planning_curves`` are the curves for one plan, ``Exploration`` those for a series of plans.
"""

from bftrainer_slurm.planner.curves.exploration import Exploration
from bftrainer_slurm.planner.curves.fit import Fit, fit
from bftrainer_slurm.planner.curves.measurement import Measurement
from bftrainer_slurm.planner.curves.news import LatestFit
from bftrainer_slurm.planner.curves.planning import Standing, planning_curves

__all__ = ["Exploration", "Fit", "LatestFit", "Measurement", "Standing", "fit", "planning_curves"]
