"""The pages that are made from the code have all that the code has."""

from dataclasses import fields

import click

from bftrainer_slurm.cli import main
from bftrainer_slurm.controller.settings import Settings
from scripts.docsite import reference


def test_the_reference_has_every_command_with_its_options() -> None:
    page = reference.commands()
    root = click.Context(main, info_name="bftrainer")
    for name in main.list_commands(root):
        command = main.get_command(root, name)
        assert command is not None
        section = page.split(f"## bftrainer {name}\n")[1].split("\n## ")[0]
        options = [one for one in command.params if isinstance(one, click.Option)]
        assert [one.opts for one in options if one.opts[-1] not in section] == []


def test_the_reference_has_every_setting_with_its_default() -> None:
    rows = [
        line.split(" | ") for line in reference.settings().splitlines() if line.startswith("| `")
    ]
    assert [row[0] for row in rows] == [f"| `{one.name}`" for one in fields(Settings)]
    assert [row[1] for row in rows if row[0] == "| `min_hole_s`"] == ["`60.0`"]


def test_a_setting_is_explained_by_what_stands_beside_it() -> None:
    said = reference.said()
    assert said["shared"].startswith("Where slurmctld has two hosts: a folder that both see")
    assert said["metrics"].startswith("Where the reader serves metrics and the page")
    assert said["partition"] != said["listen"]
