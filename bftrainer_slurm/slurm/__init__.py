"""All code that talks to Slurm: the gateway, its implementations, and submission."""
