"""The settings that hold, and the file that they are read from again when the admin says so."""

from __future__ import annotations

import logging
from collections.abc import Callable

from bftrainer_slurm.controller.settings import Settings, SettingsError
from bftrainer_slurm.controller.settings_file import differences, taken_up

logger = logging.getLogger(__name__)


class Configured:
    """What a running controller goes by. ``trouble``: why that is not what the file says, if so."""

    def __init__(self, settings: Settings, reread: Callable[[], Settings]) -> None:
        self.settings = settings
        self.trouble: str | None = None
        self._reread = reread
        self._asked = False

    def ask(self) -> None:
        """Have the file read again; a signal handler may call this at any time."""
        self._asked = True

    def reload_if_asked(self) -> bool:
        """Read the file again if that was asked for; return whether a setting changed."""
        if not self._asked:
            return False
        self._asked = False
        try:
            new = self._reread()
        except SettingsError as error:
            self.trouble = f"{error}; the settings of before hold"
            logger.error("not reloaded: %s", self.trouble)
            return False
        live, kept = differences(self.settings, new)
        self.trouble = f"wait for a restart: {', '.join(kept)}" if kept else None
        changes = [f"{name} = {getattr(new, name)!r}" for name in live]
        logger.info("settings read again: %s", "; ".join(changes) or "nothing that can change now")
        if kept:
            logger.warning("settings that %s", self.trouble)
        self.settings = taken_up(self.settings, new)
        return bool(live)
