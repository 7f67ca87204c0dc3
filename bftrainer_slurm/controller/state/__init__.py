"""What the controller remembers besides Slurm's data: trainers, holes, profiles, history."""
