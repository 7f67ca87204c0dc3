"""A private Slurm cluster on this machine; ``scripts/lab`` is its command line."""
