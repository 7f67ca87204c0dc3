"""What mounts the elements' Python into containers, as it is installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts.labcluster.stage import REPO


def test_the_snippets_name_the_folder_that_is_installed(tmp_path: Path) -> None:
    make = ("make", "-s", "-C", REPO / "packaging", "stage-elements", f"DESTDIR={tmp_path}")
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    share = Path("/usr/share/bftrainer-slurm")
    staged = tmp_path / share.relative_to("/")
    wanted = ["apptainer.conf", "element.zip", "enroot.fstab", "python"]
    assert sorted(path.name for path in staged.iterdir()) == wanted
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in staged.iterdir())
    enroot, apptainer = (
        (staged / name).read_text().splitlines()[-1] for name in ("enroot.fstab", "apptainer.conf")
    )
    source, target, kind, options = enroot.split()
    assert (source, target, kind) == (f"{share}/python", f"{share}/python", "none")
    assert {"x-create=dir", "bind", "ro", "nofail"} <= set(options.split(","))
    assert apptainer == f"bind path = {share}/python"
