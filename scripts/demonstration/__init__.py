"""``make demo``: two trainers in the holes of a private Slurm cluster, beside a stream of jobs."""
