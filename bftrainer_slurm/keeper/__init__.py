"""The keeper: a small process that holds what must outlive the controller.

It forms each trainer's group, collects notes from the elements, and shows the last status that
the controller published. It never calls Slurm, and it makes no plans.
"""
