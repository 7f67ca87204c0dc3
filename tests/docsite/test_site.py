"""The site that is built: its formulas need no script, it loads nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.labcluster.stage import REPO

_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s:#]*)(?:#[^)\s]*)?\)")
_LOADED = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(https?:)?//')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def test_pages_load_nothing_from_elsewhere_and_their_formulas_need_no_script(site: Path) -> None:
    pages = {str(page.relative_to(site)): page.read_text() for page in site.rglob("*.html")}
    assert len(pages) > 20
    assert [name for name, text in pages.items() if _LOADED.search(text)] == []
    formulas = pages["internals/planner.html"]
    assert formulas.count("<math") > 20
    assert "arithmatex" not in formulas


def test_files_beside_the_code_are_pages_that_others_link_to(site: Path) -> None:
    assert 'href="security.html"' in (site / "admin-guide.html").read_text()
    assert "make demo" in (site / "index.html").read_text()


def test_every_link_leads_to_a_file_of_the_repository_too() -> None:
    """For who reads it without the site, whose strict build knows the headings as well."""
    folders = (REPO / "docs", REPO / "examples", REPO / "slurm_plugin")
    pages = [*REPO.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]
    texts = {page: _CODE.sub("", page.read_text()) for page in pages}
    found = [(page, path) for page, text in texts.items() for path in _LINK.findall(text)]
    assert len(found) > 200
    assert [(page, path) for page, path in found if not (page.parent / path).exists()] == []
