"""What was measured once, for the record: the paper's experiments, and what plans lose by learning.

What admins run is in ``scripts``.
"""
