"""The plugins built for the installed Slurm, and a cluster for each way to rewrite."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pytest

from scripts.labcluster import plugin
from scripts.labcluster.lab import Lab
from scripts.labcluster.stage import REPO
from tests.slurm_plugin.elements import job_user
from tests.slurm_plugin.fake_keeper import FakeKeeper

WAYS = ("spank", "lua")


@pytest.fixture(scope="session")
def plugins() -> Path:
    """A folder with the compiled plugins that every user can read."""
    return plugin.built()


@pytest.fixture(scope="session")
def built_part(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Builds a file of the plugin as a library of its own, which Python can call."""
    build = tmp_path_factory.mktemp("parts")

    def built(name: str) -> Path:
        path = build / f"lib{name}.so"
        make = ("make", "-s", "-C", REPO / "slurm_plugin", "WERROR=1", f"BUILD={build}", path)
        subprocess.run(make, check=True)
        return path

    return built


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's key, which root alone can read."""
    path = tmp_path_factory.mktemp("key") / "bftrainer.key"
    path.touch(mode=0o600)
    path.write_text(os.urandom(32).hex())
    return path


@pytest.fixture(scope="session")
def keeper(key_file: Path) -> Iterator[FakeKeeper]:
    with FakeKeeper(key=key_file.read_bytes(), user=job_user()) as running:
        yield running


@pytest.fixture(scope="session")
def lab_that_rewrites(
    make_lab: Callable[..., Lab], plugins: Path, keeper: FakeKeeper
) -> Callable[[str], Lab]:
    """Returns the cluster where submissions are rewritten in one of the two ways."""

    @cache
    def started(way: str) -> Lab:
        line = f"optional {plugins}/bftrainer.so keeper={keeper.address} local_addr=127.0.0.1"
        line += "" if way == "spank" else " rewrite=cli_filter share=yes"
        conf = [] if way == "spank" else ["CliFilterPlugins=cli_filter/lua"]
        lab = make_lab(nodes=4, gpus=4, plugstack=[line], conf=conf)
        features = ("AvailableFeatures=red,big", "ActiveFeatures=red,big")
        lab.run("scontrol", "update", "NodeName=n1", *features, user="root")
        if way == "lua":
            for script in ("cli_filter.lua", "job_submit.lua"):
                shutil.copy(REPO / "slurm_plugin" / script, lab.dir / script)
            with (lab.dir / "slurm.conf").open("a") as slurm_conf:
                slurm_conf.write("JobSubmitPlugins=lua\n")
            lab.run("scontrol", "reconfigure", user="root")
        return lab

    return started


@pytest.fixture
def plugin_lab(lab_that_rewrites: Callable[[str], Lab], way: str) -> Lab:
    """The cluster for a test's ``way``. (As a parameter of its own it were started for each.)"""
    return lab_that_rewrites(way)


@pytest.fixture(scope="session")
def make_element_lab(
    make_lab: Callable[..., Lab], plugins: Path, keeper: FakeKeeper, key_file: Path
) -> Callable[..., Lab]:
    """Starts clusters to run elements on. Their KillWait is long: nothing may need it.

    Scripts run on each node: this keeper cannot say where they run, as that of test_batch does.
    """
    line = f"optional {plugins}/bftrainer.so keeper={keeper.address} local_addr=127.0.0.1"
    line += f" python={plugins}/python key_file={key_file} batch=each"
    return partial(make_lab, plugstack=[line], kill_wait=300)


@pytest.fixture(scope="session")
def element_lab(make_element_lab: Callable[..., Lab]) -> Callable[[str], Lab]:
    """Returns the cluster for elements where Slurm tracks processes in this way."""
    return cache(
        lambda tracked: make_element_lab(nodes=2, gpus=8, linuxproc=tracked == "linuxproc")
    )
