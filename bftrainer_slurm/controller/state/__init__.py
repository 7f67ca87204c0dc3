"""What the controller knows beside what Slurm says: trainers, holes, profiles, history."""
