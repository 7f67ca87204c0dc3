"""A trainer in an image that has neither our package nor MUNGE.

It is entered as pyxis does, and by apptainer, where that is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.labcluster.site import Site, prepared_site
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until
from tests.lab.test_training import PATIENCE_S, Training, batch_script

pytestmark = [
    *(pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(2400)),
    pytest.mark.skipif(os.getuid() != 0, reason="only root mounts"),
]
HERE = Path(__file__).parent
MUNGE = next(Path("/usr/lib").glob("*/libmunge.so.2"), Path("/usr/lib/libmunge.so.2"))
APPTAINER = pytest.mark.skipif(not shutil.which("apptainer"), reason="apptainer is not installed")
WAYS = [
    *(pytest.param(way, marks=pytest.mark.once) for way in ("srun", "sbatch")),
    pytest.param("apptainer", marks=(pytest.mark.newest, APPTAINER)),
]
VARIABLES = "PYTHONPATH=/image/python\nLANG=C.UTF-8\n"
# What one finds in the image, before the training begins.
LOOK = """
import ctypes, os, sys
try:
    ctypes.CDLL("libmunge.so.2")
except OSError:
    print("no munge")
import bftrainer_slurm
print("ours in", os.path.dirname(os.path.dirname(bftrainer_slurm.__file__)))
print("the image's" if "/image/python" in sys.path else "not the image's")
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="bftrainer-enter-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        plugin = f"{folder}/enter.so"
        command = ["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
        subprocess.run([*command, HERE / "enter.c", "-o", plugin], check=True)
        with prepared_site(2, plugstack=(f"required {plugin}",)) as site, site.controlled():
            yield site


@pytest.fixture(scope="module")
def image(site: Site) -> Path:
    """The host's own Python and torch, and what enroot would mount: with our snippet."""
    lab = site.lab.dir
    folder = lab / "image"
    root = folder / "root"
    (root / "image").mkdir(parents=True)
    (root / "image" / "environment").write_text(VARIABLES)
    (root / "image" / "look.py").write_text(LOOK)
    for path in map(Path, ("/bin", "/sbin", "/lib", "/lib64")):
        if path.is_symlink():
            (root / path.name).symlink_to(path.readlink())
    venv = site.stage.repo / ".venv"
    snippet = (REPO / "slurm_plugin" / "enroot.fstab.in").read_text()
    lines = [
        *(f"{path} {path} none bind,ro" for path in ("/usr", "/etc", str(venv))),
        *(f"{path} {path} none bind" for path in ("/dev", "/proc")),
        *(f"{path} {path} none bind" for path in (site.lab.home("alice").parent, lab / "tmp")),
        f"{lab}/spool {lab}/spool none bind,ro,nofail",
        f"/dev/null {MUNGE} none bind,nofail",
        snippet.replace("@pythondir@", f"{lab}/plugin/python"),
    ]
    (folder / "fstab").write_text("\n".join(lines))
    for line in (folder / "fstab").read_text().splitlines():
        if line[0] != "#" and line.split()[0] != "/dev/null":
            (root / line.split()[1].lstrip("/")).mkdir(parents=True, exist_ok=True)
    (root / "etc" / "resolv.conf").touch()  # these apptainer mounts
    (root / "etc" / "hosts").touch()
    for name in ("tmp", "sys"):
        (root / name).mkdir(exist_ok=True)
    for made in (folder, *folder.rglob("*")):
        if not made.is_symlink():
            made.chmod(0o755 if made.is_dir() else 0o644)
    return folder


def in_image(site: Site, folder: Path, image: Path, way: str) -> str:
    """A script that trains in the image: its steps, or all of it."""
    python = site.stage.repo / ".venv" / "bin" / "python"
    script = batch_script(folder, f"srun {python} /image/look.py 2>&1")
    script = script.replace("torchrun", f"{python} -m torch.distributed.run")
    if way == "sbatch":  # there is no srun in an image
        script = script.replace("srun ", "")
        return script.replace("\n", f"\n#SBATCH --container-image={image}\n", 1)
    if way == "srun":
        return script.replace("srun", f"srun --container-image={image}")
    binds = f"/usr,{site.stage.repo}/.venv,{site.lab.dir}/tmp,/dev/null:{MUNGE}"
    return script.replace("srun", f"srun apptainer exec --nv -B {binds} {image}/root")


@pytest.mark.parametrize("way", WAYS)
def test_it_joins_goes_on_after_a_reclaim_and_leaves_nothing(
    site: Site, image: Path, way: str
) -> None:
    folder = site.folder()
    output = folder / "out"
    output.mkdir()
    output.chmod(0o777)
    script = in_image(site, folder, image, way)
    array = site.submit(script, "1-2", f"--output={output}/%a")
    trainer = Training(site, array, folder)
    try:
        trainer.wait_for_world(2)
        before = trainer.steps()[-1]
        with site.taken(1) as since_s:
            alone = trainer.wait_for_world(1, since_s)
            assert alone.number >= before.number
        trainer.wait_for_world(2, alone.time_s)
        (folder / "stop").touch()
        wait_until(lambda: not site.lab.running(array), PATIENCE_S)
        assert trainer.published["failures"] == 0
    finally:
        said = "\n".join(path.read_text() for path in output.iterdir())
        print(said)
        site.end(array)
    assert f"ours in {site.lab.dir}/plugin/python\n" in said
    assert "no munge\n" in said
    assert (way == "apptainer") != ("\nthe image's\n" in said)
    mounts = f"grep -ls {image} /proc/[0-9]*/mountinfo"
    wait_until(lambda: not subprocess.run(mounts, shell=True, capture_output=True).stdout)
