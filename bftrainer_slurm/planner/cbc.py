"""CBC through python-mip: an empty model, for whoever solves with it.

Needs python-mip, as few modules do: those of the child process (``child``).
"""

from __future__ import annotations

import mip
from mip.cbc import cbclib

# CBC's tolerances are absolute: models scale what they minimize or maximize to this.
SCALE = 1000.0

# The garbage collector ends models, at any moment, and calls this function. cffi looks a function
# up at its first use, under a lock that its other look-ups hold too: a model that ended in one of
# those waited for itself for ever. A function that is known takes no lock.
_ENDS_A_MODEL = cbclib.Cbc_deleteModel


def new_model(sense: str) -> mip.Model:
    """Return an empty model, ``mip.MINIMIZE`` or ``mip.MAXIMIZE``, that is silent."""
    model = mip.Model(sense=sense, solver_name=mip.CBC)
    model.verbose = 0
    model.threads = 0  # with a thread of its own, CBC sometimes waits for it for ever
    return model
