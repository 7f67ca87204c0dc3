"""The parts of ``make test``: which lanes there are, how they run, and what is printed."""
