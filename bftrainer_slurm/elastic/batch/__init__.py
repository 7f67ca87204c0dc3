"""The batch script of a trainer runs once, and what its sruns train runs on all its elements.

``start`` stands in the script's place in each element. It asks the keeper (``meeting``) whether to
run the script here (``script``), or a step of it that runs elsewhere too (``steps``), with what
it has from the script there (``inherited``).
"""
