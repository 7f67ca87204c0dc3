import subprocess
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

import bftrainer_slurm
from bftrainer_slurm.elastic.environment import make_folder
from scripts.labcluster.stage import REPO


def linked(folder: Path) -> None:
    make_folder(folder)


def installed(folder: Path) -> None:
    subprocess.run([REPO / "slurm_plugin" / "install-python", folder], check=True)


@pytest.fixture(params=[linked, installed])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    request.param(tmp_path / "python")
    return tmp_path / "python"


def test_it_tells_torchrun_what_the_project_says(folder: Path) -> None:
    (metadata,) = folder.glob("*.dist-info")
    told = ConfigParser()
    told.read(metadata / "entry_points.txt")
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    assert {group: dict(told[group]) for group in told.sections()} == project["entry-points"]
    assert metadata.name == f"bftrainer_slurm-{bftrainer_slurm.__version__}.dist-info"


def test_the_version_stands_in_one_place() -> None:
    pyproject = tomllib.loads((REPO / "pyproject.toml").read_text())
    assert pyproject["project"]["dynamic"] == ["version"]
    said = {"attr": "bftrainer_slurm.__version__"}
    assert pyproject["tool"]["setuptools"]["dynamic"]["version"] == said
    printed = subprocess.run([REPO / "packaging" / "version"], capture_output=True, text=True)
    assert printed.stdout == f"{bftrainer_slurm.__version__}\n"


def test_it_has_our_package_and_nothing_that_shadows_what_a_user_imports(folder: Path) -> None:
    (package,) = (path for path in folder.iterdir() if path.suffix != ".dist-info")
    assert package.name == "bftrainer_slurm"
    modules = {path.relative_to(REPO) for path in (REPO / package.name).rglob("*.py")}
    found = package.resolve().rglob("*.py")
    assert {path.relative_to(package.resolve().parent) for path in found} == modules


def test_installed_again_it_has_nothing_of_the_old_one(tmp_path: Path) -> None:
    installed(tmp_path / "python")
    (tmp_path / "python" / "bftrainer_slurm" / "dropped.py").touch()
    installed(tmp_path / "python")
    assert not (tmp_path / "python" / "bftrainer_slurm" / "dropped.py").exists()
    assert list(tmp_path.iterdir()) == [tmp_path / "python"]
