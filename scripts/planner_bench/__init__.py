"""``make bench-planner``: the paper's node-level formulation beside the product's count model."""
