"""SchedMD's own tests of Slurm, run beside trainers: what they say of Slurm must stay the same."""
