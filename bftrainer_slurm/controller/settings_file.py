"""Reads ``bftrainer.toml`` and checks every value. What may be set is said in ``settings``."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from bftrainer_slurm.controller.settings import Rule, Settings, SettingsError, rules

_KINDS: dict[type, str] = {
    str: "a text",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    tuple: "a list of texts",
}
_LARGEST = 1_000_000  # bytes of a file that is read; /dev/zero has no end


def read_settings(path: Path | None, **overrides: object) -> Settings:
    """Read a TOML file (None: the defaults); ``overrides`` that are not None win.

    Raises:
        SettingsError: in one line, naming the file and the key.
    """
    return settings_of({} if path is None else read_values(path), **overrides)


def read_values(path: Path, only: Collection[str] | None = None) -> dict[str, Any]:
    """Return what a TOML file sets; of ``only`` these keys, whatever else it says.

    Raises:
        SettingsError: in one line, naming the file and the key.
    """
    values = _parsed(path)
    if only is not None:
        values = {key: value for key, value in values.items() if key in only}
    return checked(str(path), values)


def settings_of(values: Mapping[str, Any], **overrides: object) -> Settings:
    """Return the settings where a file has these values; ``overrides`` as for a file.

    Raises:
        SettingsError: an override is not possible.
    """
    given = {key: value for key, value in overrides.items() if value is not None}
    found = {**values, **checked("the command line", given)}
    if "forward_time_s" in values:
        found.setdefault("adapt_forward_time", False)
    return replace(Settings(), **found)


def checked(source: str, values: Mapping[str, object]) -> dict[str, Any]:
    """Return values as ``Settings`` has them.

    Raises:
        SettingsError: one is not known or not possible.
    """
    known = rules()
    found = {}
    for key, value in values.items():
        if key not in known:
            nearest = difflib.get_close_matches(key, known, 1, cutoff=0.0)[0]
            raise SettingsError(
                f"{source}: unknown key '{key[:80]}'; the nearest known one is {nearest}"
            )
        default, rule = known[key]
        try:
            found[key] = _checked(value, type(default), rule)
        except ValueError as error:
            raise SettingsError(f"{source}: {key}: {error}") from error
    return found


def differences(old: Settings, new: Settings) -> tuple[list[str], list[str]]:
    """Return what differs: what a running controller takes up, and what it keeps."""
    changed = [
        one.name for one in fields(Settings) if getattr(old, one.name) != getattr(new, one.name)
    ]
    known = rules()
    kept = [name for name in changed if known[name][1].kept]
    return [name for name in changed if name not in kept], kept


def taken_up(old: Settings, new: Settings) -> Settings:
    """Return the settings of a running controller whose file is now ``new``."""
    live, _ = differences(old, new)
    return replace(old, **{name: getattr(new, name) for name in live})


def _parsed(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise SettingsError(f"{path}: is no settings file: it has more than a million bytes")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: {' '.join(str(error).split())}") from error


def _checked(value: object, wanted: type, rule: Rule) -> object:
    if wanted is float and type(value) is int:
        value = float(value)
    if wanted is tuple and isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = tuple(value)
    if type(value) is not wanted:
        raise ValueError(f"must be {_KINDS[wanted]}")
    if isinstance(value, int | float) and rule.unit and not rule.least <= value <= rule.most:
        raise ValueError(f"must be from {rule.least:g} to {rule.most:,.10g} {rule.unit}")
    if rule.check is not None:
        rule.check(value)
    return value
