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
    header = tmp_path / "slurm" / "slurm_version.h"
    header.parent.mkdir()
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


def test_bad_usage_and_missing_headers_are_one_line(tmp_path: Path) -> None:
    for words in (["--pyhton", "x"], ["--python"], ["extra"]):
        done = build(*words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    done = build(SLURM_INCLUDE_DIR=str(tmp_path))
    assert done.returncode == 2
    assert "install libslurm-dev" in done.stderr
