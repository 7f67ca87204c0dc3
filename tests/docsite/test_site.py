"""The site that is built: its formulas need no script, it loads nothing from elsewhere."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.labcluster.stage import REPO

_LOADED = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(https?:)?//')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    yield folder


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    assert [page.name for page in pages if _LOADED.search(page.read_text())] == []


def test_formulas_need_no_script(site: Path) -> None:
    page = (site / "internals" / "planner.html").read_text()
    assert page.count("<math") > 20
    assert "arithmatex" not in page


def test_files_beside_the_code_are_pages_that_others_link_to(site: Path) -> None:
    assert 'href="security.html"' in (site / "admin-guide.html").read_text()
    assert "make demo" in (site / "index.html").read_text()
