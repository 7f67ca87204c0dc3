"""The reference of ``bftrainer.toml``, from the rules of the settings."""

from __future__ import annotations

import json

from bftrainer_slurm.controller.settings import Range, rules


def page() -> str:
    """Return the page in Markdown."""
    lines = [
        "# Settings",
        "",
        "`bftrainer.toml` lies in `/etc/bftrainer` or beside `slurm.conf`, on the controller's",
        "host and wherever users run `bftrainer`. Times are in seconds.",
        "A key that is not known is refused. `bftrainer controller --example` prints the file,",
        "`--check` says whether one is right, and SIGHUP has a site's controller read it again.",
        "This page is made from `bftrainer_slurm/controller/settings.py`;",
        "[the admin guide](../admin-guide.md#settings-to-know) says which ones to think about.",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    meanings = said()
    for name, (default, _) in rules().items():
        meaning = meanings[name].replace("|", "\\|")
        lines.append(f"| `{name}` | `{_toml(default)}` | {meaning} |")
    return "\n".join([*lines, ""])


def said() -> dict[str, str]:
    """Return the text about each setting: what it means, and which values it takes."""
    found = {}
    for name, (_, rule) in rules().items():
        bounds = f" {rule.check}." if isinstance(rule.check, Range) else ""
        restart = " A change waits for a restart." if rule.kept else ""
        found[name] = rule.about + bounds + restart
    return found


def _toml(value: object) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)
