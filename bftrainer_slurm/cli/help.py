"""``bftrainer help``: shows this program's documentation in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import click
from click.shell_completion import CompletionItem

import bftrainer_slurm
from bftrainer_slurm.cli.common import fail

_IN_CLONE = Path(bftrainer_slurm.__file__).parents[1] / "docs"
_INSTALLED = Path(sys.prefix) / "share" / "doc" / "bftrainer-slurm"  # see pyproject.toml
_INDEX = "index"
_FOR_DEVELOPERS = "internals"


def pages() -> dict[str, Path]:
    """Return the installed pages by topic, those for developers last.

    A folder's first page has the folder's name.
    """
    folder = next((one for one in (_IN_CLONE, _INSTALLED) if (one / "concepts.md").exists()), None)
    paths = sorted(folder.rglob("*.md")) if folder else []
    paths.sort(key=lambda path: path.parent.name == _FOR_DEVELOPERS)
    return {path.parent.name if path.stem == _INDEX else path.stem: path for path in paths}


def _complete(_: click.Context, __: click.Parameter, begin: str) -> list[CompletionItem]:
    return [CompletionItem(topic) for topic in pages() if topic.startswith(begin)]


@click.command()
@click.argument("topic", required=False, shell_complete=_complete)
def help(topic: str | None) -> None:
    """Show a page of the documentation in the terminal; without TOPIC the list of all pages.

    \b
    Examples:
      bftrainer help
      bftrainer help troubleshooting
    """
    found = pages()
    if not found:
        fail("the pages of the documentation were not installed with this program")
    if topic is None:
        width = max(map(len, found))
        click.echo("\n".join(f"{name:<{width}}  {_title(path)}" for name, path in found.items()))
        return
    click.echo_via_pager(_page(topic.removesuffix(".md"), found))


def _page(topic: str, found: Mapping[str, Path]) -> str:
    if topic not in found:
        close = get_close_matches(topic, found, 1)
        meant = f"; did you mean '{close[0]}'?" if close else "; 'bftrainer help' lists them"
        fail(f"no page '{topic}'{meant}")
    return found[topic].read_text(encoding="utf-8")


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        return next((line[2:].strip() for line in lines if line.startswith("# ")), "")
