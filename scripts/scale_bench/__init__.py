"""``make bench-scale``: the controller's daemon against a simulated slurmctld of a large cluster.

The daemon, its keeper, its planner and the clock are real; Slurm and the elements are not.
"""
