"""What the controller knows besides Slurm's data: trainers, holes, profiles, history."""
