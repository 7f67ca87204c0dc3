"""The keeper: a small process that holds what must outlive the controller.

It brings trainers' members together, takes the elements' notes, and shows the last status that
the controller published. It knows nothing of Slurm and decides nothing.
"""
