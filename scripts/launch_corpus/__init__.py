"""``make launch-corpus``: batch scripts as people write them, as trainers on a private cluster.

``corpus`` has a script of each shape, and the tiny trainings that they start.
"""
