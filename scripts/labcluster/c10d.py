"""A store for torchrun's own rendezvous, which lives as long as this process does.

By default that rendezvous waits 30 s for a last call and 15 s for a dead peer, and an agent that
joins after 60 s kills the others.
"""

from __future__ import annotations


class C10dStore:
    """Listens on the loopback address; ``environment`` makes an element's torchrun use it."""

    def __init__(self) -> None:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    @property
    def environment(self) -> dict[str, str]:
        """The variables to add to an element's environment."""
        return {
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"127.0.0.1:{self._store.port}",
            "PET_RDZV_CONF": "is_host=0,last_call_timeout=1,keep_alive_interval=1,"
            "keep_alive_max_attempt=3",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
