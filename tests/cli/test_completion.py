"""Completion as the shells do it that are on this machine, with what click writes for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from bftrainer_slurm.cli import main
from bftrainer_slurm.cli.endpoint import Endpoint, complete

# What a shell does at a tab: the words so far are its arguments, what it would offer is printed.
_BASH = """
eval "$COMPLETION"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_bftrainer_completion bftrainer 2> /dev/null # compopt works at a tab alone
printf '%s\\n' "${COMPREPLY[@]}"
"""
_ZSH = """
compdef() { }
_describe() { print -rl -- "${(@)${(@P)3}%%:*}" }
compadd() { print -rl -- "${(@P)@[-1]}" }
words=("$@") CURRENT=$#
eval "$COMPLETION"
_bftrainer_completion
"""
_FISH = """
echo $COMPLETION | source
complete -C "$argv" | string replace --regex '\\t.*' ''
"""
_SHELLS = {
    "bash": ["bash", "--norc", "-c", _BASH, "bash"],
    "zsh": ["zsh", "-f", "-c", _ZSH, "zsh"],
    "fish": ["fish", "--no-config", "-c", _FISH],
}


def offered(shell: str, home: Path, words: Sequence[str]) -> list[str]:
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(home)}

    def said(command: Sequence[str], **more: str) -> str:
        return subprocess.check_output(command, env=environment | more, text=True)

    completion = said(["bftrainer"], _BFTRAINER_COMPLETE=f"{shell}_source")
    return said([*_SHELLS[shell], "bftrainer", *words], COMPLETION=completion).split()


@pytest.mark.parametrize("shell", [name for name in _SHELLS if shutil.which(name)])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sta"], ["status"]),
        (["status", "--js"], ["--json"]),
        (["replay", "--policy", "eq"], ["equal-share"]),
    ],
    ids=" ".join,
)
def test_a_tab_completes(shell: str, words: list[str], expected: list[str], tmp_path: Path) -> None:
    assert offered(shell, tmp_path, words) == expected


def completed(begun: str) -> list[str]:
    show = main.get_command(click.Context(main), "show")
    assert show is not None
    return [item.value for item in complete(click.Context(show), show.params[0], begun)]


def test_trainers_are_completed_by_job_id_and_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ((12, "digits"), (13, "resnet 50"), (25, "dig-deeper"))
    trainers = [{"array": array, "name": name, "state": "running"} for array, name in names]
    monkeypatch.setattr(Endpoint, "read_status", lambda _: (0.0, {"trainers": trainers}))
    assert (completed("1"), completed("dig")) == (["12", "13"], ["digits", "dig-deeper"])
    assert completed("res") == []  # a name with a blank is several words to a shell


@pytest.mark.parametrize("told", [(0.0, None), (0.0, {}), (0.0, {"trainers": 3})])
def test_where_nobody_answers_nothing_is_completed(
    told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Endpoint, "read_status", lambda _: told)
    assert completed("") == []
