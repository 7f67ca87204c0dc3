"""What was measured once, for the record: the paper's experiments, and what plans lose by learning.

What admins run to see what BFTrainer does on a machine is not here, but beside it.
"""
