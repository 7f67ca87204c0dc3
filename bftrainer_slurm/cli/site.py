"""Reads a site's settings from ``bftrainer.toml``, and from the plugin's line in plugstack.conf.

What the line has need not be repeated in the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bftrainer_slurm.controller.settings import Settings, SettingsError
from bftrainer_slurm.controller.settings_file import checked, read_values, settings_of
from bftrainer_slurm.doctor.finding import OURS, PLUGSTACK
from bftrainer_slurm.doctor.plugstack import our_lines, read_lines

_ETC = Path("/etc/bftrainer")
# Slurm's own place for its files, and the place on configless hosts.
_SLURM_CONFS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
_USERS = ("listen", "munge_socket")
_IN_THE_LINE = {
    "keeper": "listen",
    "partition": "partition",
    "qos": "qos",
    "munge_socket": "munge_socket",
    "key_file": "key_file",
}


def site_files() -> list[str]:
    """Return the possible paths of a site's settings file."""
    return list(dict.fromkeys([str(_slurm_folder() / OURS), str(_ETC / OURS)]))


def site_file() -> Path | None:
    """Return the site's settings file, None if this host has none.

    Raises:
        SettingsError: there are two files.
    """
    found = [place for place in map(Path, site_files()) if _is_file(place)]
    if len(found) > 1:
        raise SettingsError(f"{found[0]}: {found[1]} is there too; keep one of them")
    return found[0] if found else None


def site_settings(path: Path | None = None, **overrides: object) -> Settings:
    """Read the site's settings: the plugin's line, overridden by ``path`` or the site's own file.

    Raises:
        SettingsError: in one line, naming the file and the key.
    """
    return settings_of(_plugin_settings() | read_values(path or site_file()), **overrides)


def site_keeper() -> Settings | None:
    """Return the settings with the site's keeper and munged, None if there is no keeper.

    For users' commands: they work even if other settings in the same file are wrong.

    Raises:
        SettingsError: in one line, naming the file and the key.
    """
    path, line = site_file(), _plugin_settings()
    if path is None and "listen" not in line:
        return None
    return settings_of(line | read_values(path, _USERS))


def _plugin_settings() -> dict[str, Any]:
    """Return the settings in the plugin's line, by their names in ``bftrainer.toml``."""
    plugstack = _slurm_folder() / PLUGSTACK
    try:
        lines = our_lines(line for _, line in read_lines(plugstack))
    except OSError:
        lines = ()
    if not lines:
        return {}
    options = lines[0].options
    found: dict[str, Any] = {
        name: options[key] for key, name in _IN_THE_LINE.items() if options.get(key)
    }
    if "share" in options:
        found["share"] = options["share"] == "yes"
    return checked(str(plugstack), found)


def _slurm_folder() -> Path:
    """Return the folder of $SLURM_CONF, or else of the first slurm.conf that exists."""
    if said := os.environ.get("SLURM_CONF"):
        return Path(said).parent
    places = [Path(place) for place in _SLURM_CONFS]
    return next(filter(_is_file, places), places[0]).parent


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
