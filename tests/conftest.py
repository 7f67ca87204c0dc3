from __future__ import annotations

import gc
import json
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from pytest import TestReport as Report

from scripts.labcluster.lab import Lab, started_lab
from scripts.labcluster.site import Site
from tests.installed_slurm import slurm_is_missing
from tests.selection import MARKS, marks_in, marks_of_all, may_mean


def pytest_configure() -> None:
    # A shell starts what runs in the background with SIGINT ignored, and that is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # On a busy host an example may take any time; no test is about that.
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Read the tests without garbage collections, as imports leave hardly any: a fifth faster.

    What is in memory then is never searched again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not collection_path.match("test_*.py"):
        return None
    marks = marks_in(collection_path), marks_of_all(collection_path)
    return None if may_mean(config.getoption("markexpr"), *marks) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marks = {mark.name for mark in item.iter_markers()} & {*MARKS}
        if not marks <= {*marks_in(item.path)}:
            raise pytest.UsageError(f"{item.nodeid}: its file does not name its marks: {marks}")
        if missing := {*marks_of_all(item.path)} - marks:
            raise pytest.UsageError(f"{item.nodeid}: its file says that it has: {missing}")
    reason = slurm_is_missing()
    if reason is not None:
        for item in items:
            if item.get_closest_marker("slurm"):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A cluster of eight nodes that tests share: each leaves it as it found it.

    Without cgroups, with which Slurm takes a second longer to end a job; nobody here looks at them.
    """
    with started_lab(nodes=8, linuxproc=True) as running:
        yield running


@pytest.fixture(scope="session")
def make_lab() -> Iterator[Callable[..., Lab]]:
    """Starts further clusters with options of their own; they are ended with the session."""
    with ExitStack() as stack:

        def make(**options: object) -> Lab:
            return stack.enter_context(started_lab(**options))  # type: ignore[arg-type]

        yield make


def described(site: Site) -> str:
    """Return what helps to find out why a test failed: queue, status, last lines of all logs."""
    listed = site.run("squeue", "-a", "-r", check=False).stdout
    newest = sorted(site.lab.dir.glob("home/*/work-*/*.out"), key=lambda path: path.stat().st_mtime)
    logs = [*newest[-4:], *site.lab.dir.glob("controller-*.log")]
    ends = [f"== {path}\n{path.read_text(errors='replace')[-2000:]}" for path in logs]
    return "\n".join([listed, json.dumps(site.controller.status(), indent=1), *ends])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Report, Report]:
    """Where a test on a site fails, its report has what the site looked like."""
    report = yield
    site = getattr(item, "funcargs", {}).get("site")
    if report.failed and isinstance(site, Site):
        report.sections.append(("the site", described(site)))
    return report
