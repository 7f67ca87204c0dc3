"""A process of its own for atheris, which never returns: ``python -m tests.fuzz.guided``.

Usage: NAME and the options of libFuzzer. What is imported here is instrumented for coverage.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import Any


def main() -> None:
    """Fuzz until libFuzzer ends the process."""
    atheris: Any = import_module("atheris")
    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=["bftrainer_slurm"]):
        from tests.fuzz.catalogue import BY_NAME

        function = BY_NAME[sys.argv[1]].function()
    atheris.Setup([sys.argv[0], *sys.argv[2:]], function)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
