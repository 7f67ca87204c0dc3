"""``make paper``: the experiments of the BFTrainer paper, replayed with the product's planner."""
