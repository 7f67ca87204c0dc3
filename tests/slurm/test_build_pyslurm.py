from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from scripts.labcluster.stage import REPO


def build(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(REPO / "scripts" / "build-pyslurm"), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(("number", "name"), [("0x160508", "22.05"), ("0x180b05", "24.11")])
def test_says_plainly_where_there_is_no_pyslurm(tmp_path: Path, number: str, name: str) -> None:
    (tmp_path / "slurm").mkdir()
    header = tmp_path / "slurm" / "slurm_version.h"
    header.write_text(f"#define SLURM_VERSION_NUMBER {number}\n")
    done = build(SLURM_INCLUDE_DIR=str(tmp_path))
    assert done.returncode == 3
    assert f"cannot be built for Slurm {name}" in done.stderr
    assert "command gateway is used instead" in done.stderr


def test_the_extra_is_the_release_that_it_builds() -> None:
    extras = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    (extra,) = extras["optional-dependencies"]["pyslurm"]
    script = (REPO / "scripts" / "build-pyslurm").read_text()
    assert f"readonly PYSLURM={extra.removeprefix('pyslurm==')}\n" in script


@pytest.mark.parametrize("arguments", [["--pyhton", "x"], ["--python"], ["extra"]])
def test_bad_usage_is_one_line(arguments: list[str]) -> None:
    done = build(*arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_missing_headers_are_named_with_the_package(tmp_path: Path) -> None:
    done = build(SLURM_INCLUDE_DIR=str(tmp_path))
    assert done.returncode == 2
    assert "install libslurm-dev" in done.stderr
