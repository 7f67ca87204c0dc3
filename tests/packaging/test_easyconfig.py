"""EasyBuild's recipe for the controller: of this version, with all that the controller needs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import bftrainer_slurm

_REPO = Path(__file__).resolve().parents[2]
(_RECIPE,) = (_REPO / "packaging" / "easybuild").glob("*.eb")


def recipe() -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(_RECIPE.read_text(), found)  # easyconfigs are Python
    return found


def test_it_is_of_this_version() -> None:
    assert recipe()["version"] == bftrainer_slurm.__version__
    assert _RECIPE.name.startswith(f"bftrainer-slurm-{bftrainer_slurm.__version__}-")


def test_it_has_all_that_the_controller_needs() -> None:
    project = tomllib.loads((_REPO / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["controller"]]
    names = {re.split("[><=\\[]", one)[0] for one in needed}
    assert names <= {name for name, _, _ in recipe()["exts_list"]}


def test_what_is_fetched_is_known_by_its_checksum() -> None:
    fetched = [how for name, _, how in recipe()["exts_list"] if name != "bftrainer-slurm"]
    for how in fetched:
        (checksum,) = how["checksums"]
        assert re.fullmatch("[0-9a-f]{64}", checksum)
