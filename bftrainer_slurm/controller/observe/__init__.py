"""What the controller sees: Slurm, members of trainers, and when to look. Makes no decisions."""
