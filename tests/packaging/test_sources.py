"""The archive of the sources, which ``make -C packaging rpm`` packs from the working tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest

_REPO = Path(__file__).resolve().parents[2]
_PACKED = ("bftrainer_slurm", "slurm_plugin", "packaging")
_FILES = ("docs/roll-out.md", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A working tree of its own."""
    tree = tmp_path / "tree"
    for folder in _PACKED:
        shutil.copytree(_REPO / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in _FILES:
        (tree / file).parent.mkdir(exist_ok=True)
        shutil.copy(_REPO / file, tree / file)
    return tree


def archive_of(tree: Path) -> list[str]:
    """Packs the sources; the names in the archive, below its one folder."""
    version = subprocess.check_output([tree / "packaging/version"], text=True).strip()
    build = tree / "build"
    archive = build / f"bftrainer-slurm-{version}.tar.gz"
    make = ["make", "-s", "-C", str(tree / "packaging"), f"BUILD={build}", str(archive)]
    done = subprocess.run(make, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with tarfile.open(archive) as packed:
        return [name.removeprefix(f"bftrainer-slurm-{version}/") for name in packed.getnames()]


def test_they_are_the_files_of_the_tree_without_bytecode(tree: Path) -> None:
    expected = sorted(str(file.relative_to(tree)) for file in tree.rglob("*") if file.is_file())
    bytecode = tree / "bftrainer_slurm/__pycache__/spec.cpython-311.pyc"
    bytecode.parent.mkdir()
    bytecode.touch()
    assert sorted(archive_of(tree)) == expected


def test_they_are_packed_while_tests_write_their_bytecode(tree: Path) -> None:
    folders = [tree / "bftrainer_slurm", *(tree / "bftrainer_slurm").glob("*/")]
    packed = threading.Event()

    def write_bytecode() -> None:
        while not packed.is_set():
            for folder in folders:
                os.utime(folder)

    writer = threading.Thread(target=write_bytecode)
    writer.start()
    try:
        archive_of(tree)
    finally:
        packed.set()
        writer.join()
