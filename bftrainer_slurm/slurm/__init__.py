"""All that talks to Slurm: the gateway and its two implementations, and submission."""
