"""The reference: pages made from the code, of the command line and of the settings."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from bftrainer_slurm.controller.settings import Range, rules

_WIDTH = 100


def commands() -> str:
    """Return the page of the command line in Markdown, made from click's own help."""
    from bftrainer_slurm.cli import main

    lines = [
        "# Commands",
        "",
        "This page is made from `bftrainer --help` and `bftrainer COMMAND --help`.",
        "[The command line](../command-line.md) has exit codes, pipes and shell completion.",
    ]
    for name, text in _helps(main):
        lines += ["", f"## {name}", "", "```text", text.rstrip(), "```"]
    return "\n".join([*lines, ""])


def _helps(group: click.Group) -> Iterator[tuple[str, str]]:
    root = click.Context(group, info_name="bftrainer", max_content_width=_WIDTH)
    yield "bftrainer", group.get_help(root)
    for name in group.list_commands(root):
        command = group.get_command(root, name)
        assert command is not None
        context = click.Context(
            command,
            info_name=name,
            parent=click.Context(group, info_name="bftrainer"),
            max_content_width=_WIDTH,
        )
        yield f"bftrainer {name}", command.get_help(context)


def settings() -> str:
    """Return the page of ``bftrainer.toml`` in Markdown, from the rules of the settings."""
    lines = [
        "# Settings",
        "",
        "`bftrainer.toml` lies in `/etc/bftrainer` or beside `slurm.conf`, on the controller's",
        "host and wherever users run `bftrainer`. Times are in seconds.",
        "A key that is not known is refused. `bftrainer controller --example` prints the file,",
        "`--check` says whether one is right; the controller reads it when it starts.",
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
        found[name] = rule.about + bounds
    return found


def _toml(value: object) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)
