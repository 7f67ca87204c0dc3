"""The plugins as others build them: with flags of their own, and with ours for tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scripts.labcluster.stage import REPO

pytestmark = pytest.mark.slurm  # its headers

# What Debian's and Fedora's build tools say now, in essence.
DISTRIBUTION = {
    "CPPFLAGS": "-Wdate-time -D_FORTIFY_SOURCE=3",
    "CFLAGS": "-g -O2 -fstack-protector-strong -Wformat -Werror=format-security -fcf-protection",
    "LDFLAGS": "-Wl,-z,relro -Wl,-z,now -Wl,--build-id=sha1",
}


def built(folder: Path, *words: str, **flags: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-C", str(REPO / "slurm_plugin"), f"BUILD={folder}", *words]
    mine = {
        name: value for name, value in os.environ.items() if name not in (*DISTRIBUTION, "WERROR")
    }
    return subprocess.run(command, capture_output=True, text=True, env=mine | flags, check=True)


@pytest.mark.newest
def test_our_own_flags_give_no_warning(tmp_path: Path) -> None:
    done = built(tmp_path, "WERROR=1", "all")
    assert done.stderr == ""
    assert "-D_FORTIFY_SOURCE=2" in done.stdout
    assert "-Werror " in done.stdout  # which is for our tests alone


@pytest.mark.once
def test_a_distributions_flags_are_taken_as_they_are(tmp_path: Path) -> None:
    one = built(tmp_path, f"{tmp_path}/site.o", **DISTRIBUTION)
    assert one.stderr == ""  # a level of our own beside theirs would be a warning for each file
    said = built(tmp_path, "--dry-run", "all", **DISTRIBUTION).stdout
    compiled = [line for line in said.splitlines() if " -c " in line]
    assert len(compiled) > 15
    assert all(f" {DISTRIBUTION['CPPFLAGS']}" in line for line in compiled)
    assert "-D_FORTIFY_SOURCE=2" not in said and "-Werror " not in said
