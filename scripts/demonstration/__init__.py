"""The parts of ``make demo``; ``scripts/demo`` puts them together."""
