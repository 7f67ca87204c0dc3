"""The parts of ``make chaos``: faults, one after the other, on a private cluster that trains."""
