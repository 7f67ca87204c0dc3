"""ddp.py as many scripts are: at SIGTERM it saves, and ends with 0."""

import signal
import sys

from ddp import main  # type: ignore[import-not-found]

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main()
