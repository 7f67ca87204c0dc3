"""The reference of the command line, made from click's own help."""

from __future__ import annotations

from collections.abc import Iterator

import click

_WIDTH = 100


def page() -> str:
    """Return the page in Markdown."""
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
