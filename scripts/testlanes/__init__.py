"""The parts of ``make test``: which lanes there are, how they are run, and what is told of them."""
