import os
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

import bftrainer_slurm
from bftrainer_slurm.elastic.environment import element_environment, make_folder
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.spec import TrainerRecord
from scripts.labcluster.stage import REPO


def environment(slurm: dict[str, str], local_address: str | None = None) -> dict[str, str]:
    element, record, folder = ElementId(12, 3), TrainerRecord(2, 16), Path("/f")
    return element_environment(element, record, "12.1", "ctl:6740", slurm, folder, local_address)


def test_an_element_has_its_rendezvous_its_grace_and_output_files_that_go_on() -> None:
    variables = environment({})
    wanted = {
        "PET_RDZV_BACKEND": "bftrainer",
        "PET_RDZV_ID": "12.1",
        "PET_NNODES": "1:16",
        "BFTRAINER_GRACE": "0.5",
        "SLURM_OPEN_MODE": "append",
    }
    assert variables.items() >= wanted.items()
    # Who chooses c10d says where its store is and who hosts it.
    assert not {"PET_RDZV_ENDPOINT", "PET_RDZV_CONF", "PET_LOCAL_ADDR"} & variables.keys()
    assert environment({}, "127.0.0.1")["PET_LOCAL_ADDR"] == "127.0.0.1"


@pytest.mark.parametrize(("gpus", "processes"), [("4", "4"), ("0", "1"), ("", "1"), ("x;y", "1")])
def test_there_is_one_process_a_gpu_or_one(gpus: str, processes: str) -> None:
    assert environment({"SLURM_GPUS_ON_NODE": gpus})["PET_NPROC_PER_NODE"] == processes


@pytest.mark.parametrize(("before", "after"), [(None, "/f"), ("", "/f"), ("/a::/b", "/f:/a::/b")])
def test_our_folder_comes_first_in_the_users_path(before: str | None, after: str) -> None:
    variables = environment({} if before is None else {"PYTHONPATH": before})
    assert (variables["PET_RDZV_BACKEND"], variables["PYTHONPATH"]) == ("bftrainer", after)


def test_the_version_stands_in_one_place() -> None:
    pyproject = tomllib.loads((REPO / "pyproject.toml").read_text())
    assert pyproject["project"]["dynamic"] == ["version"]
    said = {"attr": "bftrainer_slurm.__version__"}
    assert pyproject["tool"]["setuptools"]["dynamic"]["version"] == said
    printed = subprocess.run([REPO / "packaging" / "version"], capture_output=True, text=True)
    assert printed.stdout == f"{bftrainer_slurm.__version__}\n"


def installed(folder: Path) -> None:
    subprocess.run([REPO / "slurm_plugin" / "install-python", folder], check=True)


@pytest.fixture(params=[make_folder, installed])
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


def test_one_file_holds_all_that_an_element_imports(tmp_path: Path) -> None:
    made = [tmp_path / "element.zip", tmp_path / "again.zip"]
    for file in made:
        install = REPO / "slurm_plugin" / "install-python"
        subprocess.run([install, tmp_path / "python", file], check=True)
    assert made[0].read_bytes() == made[1].read_bytes()
    elastic = REPO / "bftrainer_slurm" / "elastic"
    names = [path.relative_to(REPO).with_suffix("") for path in elastic.rglob("*.py")]
    stay_out = ("callbacks", "lightning", "huggingface")  # they import frameworks
    modules = [".".join(name.parts) for name in names if not set(stay_out) & set(name.parts)]
    program = f"""
import importlib, sys
from importlib.metadata import distributions
for found in distributions(path=sys.argv[1:]):
    for point in found.entry_points:
        point.load()
for name in {modules}:
    importlib.import_module(name)
print({{point.group for point in found.entry_points}} == {{"torchrun.handlers", "torch.backends"}})
print(all(sys.argv[1] in sys.modules[name].__file__ for name in {modules}))
"""
    said = subprocess.run(
        [sys.executable, "-c", program, str(made[0])],
        env=os.environ | {"PYTHONPATH": str(made[0])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert said.stdout == "True\nTrue\n", said.stderr
