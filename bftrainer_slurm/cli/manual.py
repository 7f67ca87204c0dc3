"""Makes man pages and shell completion from the commands' help.

``python -m bftrainer_slurm.cli.manual FOLDER`` writes them in the layout of a prefix. ``make man``
writes those in the repository, which ``make install-man`` and the wheel install.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from bftrainer_slurm import __version__
from bftrainer_slurm.cli import COMMANDS, main

_NAME = "bftrainer"
_COMPLETIONS = {
    "bash": "share/bash-completion/completions/bftrainer",
    "zsh": "share/zsh/site-functions/_bftrainer",
    "fish": "share/fish/vendor_completions.d/bftrainer.fish",
}
_STATUS = (
    ("0", "All went well."),
    ("1", "doctor: something must change. Any command: standard output takes no more."),
    ("2", "Bad input: one line on stderr says what, and what to write instead."),
    ("3", "Slurm, or the controller, does not answer."),
    ("130", "Ctrl-C."),
)
_EXAMPLES = ("Example:", "Examples:")


def pages() -> Iterator[tuple[str, str]]:
    """Yield name and text of each page."""
    context = click.Context(main, info_name=_NAME, **main.context_settings)
    names = [f"{_NAME}-{name}" for name in COMMANDS]
    yield _page(_NAME, (main.help or "").strip(), context, names)
    for page, (name, short) in zip(names, COMMANDS.items(), strict=True):
        command = main.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, **command.context_settings)
        yield _page(page, short, inner, [_NAME])


def write(folder: Path) -> None:
    """Write all pages and completions below a folder.

    Raises:
        OSError: a file cannot be written.
    """
    for name, text in pages():
        _put(folder / "share" / "man" / "man1" / name, text)
    for shell, path in _COMPLETIONS.items():
        completion = get_completion_class(shell)
        assert completion is not None
        made = completion(main, {}, _NAME, "_BFTRAINER_COMPLETE")
        _put(folder / path, (made.source_template % made.source_vars()).strip() + "\n")


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _page(name: str, short: str, context: click.Context, others: list[str]) -> tuple[str, str]:
    command = context.command
    words = " ".join(command.collect_usage_pieces(context))
    text, examples = _parts(command.help or "")
    lines = [
        f'.TH "{name.upper()}" "1" "" "bftrainer\\-slurm {__version__}" "BFTrainer for Slurm"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(short.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_escaped(name.replace('-', ' ', 1))}",
        _escaped(words),
        ".SH DESCRIPTION",
        *(line for paragraph in text for line in (".PP", _escaped(paragraph))),
    ]
    if isinstance(command, click.Group):
        lines += [".SH COMMANDS", *_listed(COMMANDS.items())]
    lines += [".SH OPTIONS", *_listed(_options(command, context))]
    if examples:
        lines += [".SH EXAMPLES", ".nf", *map(_escaped, examples), ".fi"]
    lines += [".SH EXIT STATUS", *_listed(_STATUS), ".SH SEE ALSO"]
    lines.append(", ".join(f"\\fB{_escaped(other)}\\fR(1)" for other in others))
    return f"{name}.1", "\n".join(lines) + "\n"


def _parts(text: str) -> tuple[list[str], list[str]]:
    """Return the paragraphs of a help text, and the lines of its examples."""
    whole = [part for part in inspect.cleandoc(text).split("\n\n") if part.strip()]
    paragraphs, examples = [], []
    for part in whole:
        lines = [line for line in part.splitlines() if line.strip() != "\b"]
        if lines[0].strip() in _EXAMPLES:
            examples += textwrap.dedent("\n".join(lines[1:])).splitlines()
        else:
            paragraphs.append(" ".join(line.strip() for line in lines))
    return paragraphs, examples


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield each option with its value's name, and its help."""
    for option in command.get_params(context):
        if isinstance(option, click.Option) and not option.hidden:
            names = ", ".join(option.opts) + "".join(f" / {one}" for one in option.secondary_opts)
            words = "" if option.is_flag or option.count else f" {_value(option)}"
            shown = option.show_default and option.default is not None
            default = f" [default: {option.default}]" if shown else ""
            yield names + words, (option.help or "") + default


def _value(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return option.type.name.upper()


def _listed(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, text in entries:
        yield from (".TP", f".B {_escaped(term)}", _escaped(text))


def _escaped(text: str) -> str:
    """Return a line that troff prints as it is."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{safe}" if safe.startswith(".") else safe


if __name__ == "__main__":
    write(Path(sys.argv[1]))
