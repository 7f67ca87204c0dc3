"""Replays: traces of holes, a simulated cluster, and figures of what trainers harvest there."""

import os

os.environ.pop("MPLBACKEND", None)  # a user's choice, and with one that is not here no import works
