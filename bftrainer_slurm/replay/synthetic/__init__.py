"""A made-up cluster: a random workload, scheduled as Slurm would, and its holes."""
