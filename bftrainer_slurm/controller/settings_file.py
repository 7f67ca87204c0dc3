"""Reads ``bftrainer.toml``, and checks every value.

``settings`` defines all settings; the example file is made from it.
"""

from __future__ import annotations

import difflib
import json
import textwrap
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bftrainer_slurm.controller.settings import Range, Rule, Settings, SettingsError, rules

_KINDS: dict[type, str] = {
    str: "a text",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    tuple: "a list of texts",
}
_ALL_KEYS = "'bftrainer controller --example' has all"
_LARGEST = 1_000_000  # bytes; larger files are refused, because /dev/zero has no end
_HEADER = """\
# Settings of BFTrainer's controller and keeper: /etc/bftrainer/bftrainer.toml, or bftrainer.toml
# beside slurm.conf, not both. Every line below is a default; remove its '#' to change it.
#   bftrainer controller --check               checks the file
#   systemctl restart bftrainer-controller     applies it; this costs trainers nothing
# The keeper uses the first four too: restart it as well.
"""


def read_settings(path: Path | None, **overrides: object) -> Settings:
    """Read a TOML file (None: the defaults); ``overrides`` that are not None take precedence.

    Raises:
        SettingsError: the file is wrong; the message is one line with the file and the key.
    """
    return settings_of(read_values(path), **overrides)


def read_values(path: Path | None, only: Collection[str] | None = None) -> dict[str, Any]:
    """Return the values in a TOML file (None: no values); with ``only``, just these keys.

    Raises:
        SettingsError: the file is wrong; the message is one line with the file and the key.
    """
    if path is None:
        return {}
    found = _parsed(path)
    return checked(str(path), {key: found[key] for key in found if only is None or key in only})


def settings_of(values: Mapping[str, Any], **overrides: object) -> Settings:
    """Return the settings for these values; ``overrides`` that are not None take precedence.

    Raises:
        SettingsError: an override is impossible.
    """
    given = {key: value for key, value in overrides.items() if value is not None}
    found = {**values, **checked("the command line", given)}
    return replace(Settings(), **found)


def checked(source: str, values: Mapping[str, object]) -> dict[str, Any]:
    """Return values in the types of ``Settings``.

    Raises:
        SettingsError: some are unknown or impossible; the message names all of them.
    """
    known = rules()
    found, wrong = {}, []
    for key, value in values.items():
        try:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                nearest = f"the nearest known one is {near[0]}" if near else _ALL_KEYS
                raise ValueError(f"unknown key; {nearest}")
            default, rule = known[key]
            found[key] = _checked(value, type(default), rule)
        except ValueError as error:
            wrong.append(f"{key[:80]}: {error}")
    if wrong:
        raise SettingsError(f"{source}: {'. '.join(wrong)}")
    return found


def example() -> str:
    """Return an example file: all defaults, with comments."""
    return _HEADER + "".join(
        "\n" + "\n".join(_entry(name, default, rule)) + "\n"
        for name, (default, rule) in rules().items()
    )


def _entry(name: str, default: object, rule: Rule) -> Iterator[str]:
    about = rule.about + (f" [{rule.check}]" if isinstance(rule.check, Range) else "")
    yield from textwrap.wrap(about, 98, initial_indent="# ", subsequent_indent="# ")
    yield f"#{name} = {json.dumps(default)}"


def _parsed(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise SettingsError(f"{path} is not a settings file: it has more than a million bytes")
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
    if rule.check is not None:
        rule.check(value)
    return value
