"""The pages that are made from the code have all that the code has."""

from dataclasses import fields

import click

from bftrainer_slurm.cli import main
from bftrainer_slurm.controller.settings import Settings
from scripts.docsite import reference


def test_the_reference_has_every_command() -> None:
    page = reference.commands()
    names = main.list_commands(click.Context(main, info_name="bftrainer"))
    assert [name for name in names if f"\n## bftrainer {name}\n" not in page] == []


def test_the_reference_has_every_setting_with_its_default_and_meaning() -> None:
    rows = [
        line.split(" | ") for line in reference.settings().splitlines() if line.startswith("| `")
    ]
    assert [row[0] for row in rows] == [f"| `{one.name}`" for one in fields(Settings)]
    found = {name: more for name, *more in rows}
    assert found["| `min_hole_s`"][0] == "`60.0`"
    assert found["| `shared`"][1].startswith("Where slurmctld has two hosts: a folder that both")
