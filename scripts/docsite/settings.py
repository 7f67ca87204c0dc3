"""The reference of ``bftrainer.toml``, from the settings and what stands beside them."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields

from bftrainer_slurm.controller.settings import Settings

_FIELD = re.compile(r"^    (\w+): .* = .*?(?:  # (.*))?$")
_COMMENT = re.compile(r"^    # (.*)$")


def page() -> str:
    """Return the page in Markdown."""
    lines = [
        "# Settings",
        "",
        "`bftrainer.toml` lies beside `slurm.conf`, on the controller's host and wherever users",
        "run `bftrainer`. Times are in seconds. A key that is not known is refused.",
        "This page is made from `bftrainer_slurm/controller/settings.py`;",
        "[the admin guide](../admin-guide.md#settings-to-know) says which ones to think about.",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    meanings = said()
    for one in fields(Settings):
        meaning = meanings[one.name].replace("``", "`").replace("|", "\\|")
        lines.append(f"| `{one.name}` | `{_toml(one.default)}` | {meaning} |")
    return "\n".join([*lines, ""])


def said() -> dict[str, str]:
    """Return what is said of each setting: its rule, or else the comments at it."""
    comments = _comments()
    found = {}
    for one in fields(Settings):
        rule = one.metadata.get("rule")
        if rule is None:
            found[one.name] = comments[one.name]
        else:
            bounds = f" {rule.least:g} to {rule.most:,g} {rule.unit}." if rule.unit else ""
            found[one.name] = rule.about + bounds
    return found


def _comments() -> dict[str, str]:
    """Return the comments above each field, and behind it."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(Settings).splitlines():
        if comment := _COMMENT.match(line):
            above.append(comment[1])
        elif setting := _FIELD.match(line):
            found[setting[1]] = " ".join([*above, setting[2] or ""]).strip()
            above = []
    return found


def _toml(value: object) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)
