"""What was measured once, for the record: the paper's experiments.

What admins run is in ``scripts``.
"""
