"""A made cluster: a workload drawn by chance, scheduled as Slurm would, and its holes."""
