"""The stages of the controller's data are folders, or a module: each knows only those before it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bftrainer_slurm import controller

PACKAGE = Path(controller.__file__).parent
KNOWS = {
    "observe": {"settings"},
    "state": {"settings", "observe"},
    "decide": {"settings", "observe", "state"},
    "act": {"observe", "state", "decide"},
    "publish": {"observe", "state", "decide"},
}


def imported(module: Path) -> set[str]:
    """Which parts of the controller a module imports anything from, by folder or module."""
    imports = rf"^\s*(?:from|import) {re.escape(controller.__name__)}(?:\.| import )(\w+)"
    return set(re.findall(imports, module.read_text(), re.MULTILINE))


@pytest.mark.parametrize("stage", KNOWS)
def test_a_stage_imports_only_the_stages_before_it(stage: str) -> None:
    modules = sorted((PACKAGE / stage).glob("*.py")) or [PACKAGE / f"{stage}.py"]
    found = {module.name: imported(module) - KNOWS[stage] - {stage} for module in modules}
    assert {name: more for name, more in found.items() if more} == {}


def test_every_stage_has_its_rule() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders | {"act"} == KNOWS.keys()
