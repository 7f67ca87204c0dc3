"""What a cluster would harvest: traces of holes, a simulated cluster, and its figures."""
