"""The example file: what the code says, and nothing that an admin could not use."""

from __future__ import annotations

import tomllib
from pathlib import Path

from bftrainer_slurm.controller.settings import rules
from bftrainer_slurm.controller.settings_example import example
from bftrainer_slurm.controller.settings_file import checked

_KEPT = Path(__file__).resolve().parents[2] / "packaging" / "bftrainer.toml"


def test_the_file_in_the_repository_is_the_one_that_the_code_makes() -> None:
    assert _KEPT.read_text() == example(), (
        "bftrainer controller --example > packaging/bftrainer.toml"
    )


def test_as_it_is_it_sets_nothing() -> None:
    assert tomllib.loads(example()) == {}


def test_each_line_taken_as_a_setting_is_the_default() -> None:
    lines = [line[1:] for line in example().splitlines() if line[:1] == "#" and line[1:2] != " "]
    said = checked("example", tomllib.loads("\n".join(lines)))
    assert said == {name: default for name, (default, _) in rules().items()}
