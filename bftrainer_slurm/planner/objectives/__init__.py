"""What a plan maximises: from what is known of the trainers to an objective curve for each.

A base metric and its modifiers are a small module each; ``find`` composes them by name.
"""

from bftrainer_slurm.planner.objectives.base import Deadline, Facts, Objective, ObjectiveError
from bftrainer_slurm.planner.objectives.checked import curves_of
from bftrainer_slurm.planner.objectives.registry import find, known

__all__ = ["Deadline", "Facts", "Objective", "ObjectiveError", "curves_of", "find", "known"]
