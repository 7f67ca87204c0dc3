"""``make bench-planner``: compares the paper's node-level formulation with our count model."""
