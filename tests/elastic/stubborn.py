"""A script that hangs at SIGTERM, as Lightning's does in a broadcast; else ddp.py."""

import signal
import time

from ddp import main  # type: ignore[import-not-found]

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: time.sleep(3600))
    main()
