"""The checks of ``bftrainer doctor``: facts in, findings out.

Only ``gather`` asks Slurm, the keeper and this host. The checks are pure, a module for each group.
"""
