"""Man pages and shell completion: as the help is, and installed where they are looked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer_slurm.cli import COMMANDS
from bftrainer_slurm.cli.manual import pages

REPO = Path(__file__).parents[2]
MAN = REPO / "share" / "man" / "man1"
PAGES = dict(pages())


def test_the_pages_say_what_the_help_says() -> None:
    kept = {path.name: path.read_text() for path in MAN.iterdir()}
    assert kept == PAGES, "call 'make man'"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page_with_an_example(command: str) -> None:
    _, _, examples = PAGES[f"bftrainer-{command}.1"].partition("\n.SH EXAMPLES\n.nf\n")
    assert examples.replace("\\-", "-").startswith(f"bftrainer {command}")


@pytest.mark.parametrize("name", PAGES)
def test_no_line_of_a_page_is_taken_for_a_request_of_troff(name: str) -> None:
    requests = (".TH ", ".SH ", ".PP", ".TP", ".B ", ".nf", ".fi")
    begun = [line for line in PAGES[name].splitlines() if line.startswith((".", "'"))]
    assert all(line.startswith(requests) for line in begun)


def test_the_options_of_a_page_are_those_of_the_command() -> None:
    page = PAGES["bftrainer-history.1"].replace("\\-", "-")
    for option in ("--since WHEN", "-n, --last N", "--state DIRECTORY", "--json", "-h, --help"):
        assert f"\n.B {option}\n" in page


def test_bash_completes_with_what_is_installed() -> None:
    words = "COMP_WORDS=(bftrainer his); COMP_CWORD=1"
    script = (
        f"{words}; . share/bash-completion/completions/bftrainer; _bftrainer_completion bftrainer"
    )
    done = subprocess.run(
        ["bash", "-c", f"{script}; echo ${{COMPREPLY[@]}}"],
        cwd=REPO,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["history"], done.stderr


def test_pages_and_completion_are_installed_below_the_prefix(tmp_path: Path) -> None:
    command = ("make", "install-man", f"DESTDIR={tmp_path}", "PREFIX=/usr")
    subprocess.run(command, cwd=REPO, check=True, capture_output=True)
    share = tmp_path / "usr" / "share"
    assert {path.name for path in (share / "man" / "man1").iterdir()} == PAGES.keys()
    assert (share / "bash-completion" / "completions" / "bftrainer").is_file()
