"""Private Slurm clusters on this machine, for ``scripts/lab``, the demo, benches and tests."""


class LabError(Exception):
    """The cluster cannot do that; the message says what to do."""


class OptionsError(LabError):
    """These options do not go together, or not with who asks."""
