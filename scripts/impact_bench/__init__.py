"""What trainers cost ordinary jobs; ``scripts/run bench-impact`` is its command line."""
