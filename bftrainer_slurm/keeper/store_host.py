"""The process beside the keeper in which torch's stores live, as the keeper sees it.

Importing torch takes seconds, and what its C++ aborts is the process that it runs in. What the
process does is in ``store_server``.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
import sys

logger = logging.getLogger(__name__)

_END_S = 5.0


class StoreHost:
    """Starts the process, and hands it the sockets that stores are to listen on."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def ensure(self) -> bool:
        """Start the process where it does not run; say whether it had to be started.

        Then it has no stores: those that an earlier one had are gone.
        """
        if self._process is not None and self._process.poll() is None:
            return False
        if self._process is not None:
            logger.warning("the stores' process has ended (%s)", self._process.returncode)
        self.stop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-m", "bftrainer_slurm.keeper.store_server"]
        with theirs:
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), start_new_session=True)
        self._channel = ours
        return True

    def open(self, name: str, listener: socket.socket) -> None:
        """Let a store answer on this socket; connections to it may be made at once."""
        host, port = listener.getsockname()[:2]
        self._tell(f"{name} {host} {port}", listener)

    def close(self, name: str) -> None:
        """End a store."""
        self._tell(name)

    def stop(self) -> None:
        """End the process, with all its stores."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
            self._process.kill()
            self._process.wait()
            self._process = None

    def _tell(self, text: str, *sockets: socket.socket) -> None:
        if self._channel is None:
            return
        # Where the process has just ended, the next ``ensure`` finds out.
        with contextlib.suppress(OSError):
            socket.send_fds(self._channel, [text.encode()], [one.fileno() for one in sockets])
