"""What trainers cost ordinary jobs; ``scripts/bench-impact`` is its command line."""
