"""Throughput curves that nobody has to supply: measured points, a fitted law between them.

``fit`` turns measurements into a posterior, ``Fits`` keeps those of many trainers until there is
news; ``planning_curves`` is what a plan uses of them, ``Exploration`` what one after another does.
"""

from bftrainer_slurm.planner.curves.exploration import Exploration
from bftrainer_slurm.planner.curves.fit import Fit, fit
from bftrainer_slurm.planner.curves.measurement import Measurement
from bftrainer_slurm.planner.curves.news import Fits
from bftrainer_slurm.planner.curves.planning import Standing, planning_curves

__all__ = ["Exploration", "Fit", "Fits", "Measurement", "Standing", "fit", "planning_curves"]
