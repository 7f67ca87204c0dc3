"""What ``bftrainer doctor`` looks at: facts in, findings out.

``gather`` is the one module that asks anybody. The checks are pure, a module for each group.
"""
