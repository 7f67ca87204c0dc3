"""The settings of a running controller, whose file the admin may have read again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from bftrainer_slurm.controller.settings import Settings, SettingsError, rules

logger = logging.getLogger(__name__)


class LiveSettings:
    """``settings`` are those in use; ``trouble`` says why they differ from the file, if so."""

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
            self.trouble = f"{error}; the earlier settings stay"
            logger.error("not reloaded: %s", self.trouble)
            return False
        old = self.settings
        changed = [name for name in rules() if getattr(old, name) != getattr(new, name)]
        kept = [name for name in changed if rules()[name][1].kept]
        live = {name: getattr(new, name) for name in changed if name not in kept}
        self.trouble = f"need a restart: {', '.join(kept)}" if kept else None
        changes = [f"{name} = {value!r}" for name, value in live.items()]
        logger.info("settings read again: %s", "; ".join(changes) or "nothing that can change now")
        if kept:
            logger.warning("settings that %s", self.trouble)
        self.settings = replace(old, **live)
        return bool(live)
