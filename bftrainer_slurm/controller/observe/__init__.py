"""What the controller reads: Slurm, trainers' reports, and when to read. It decides nothing."""
