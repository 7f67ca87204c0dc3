"""Links between the repository's pages, as a reader without the site follows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markdown.extensions.toc import slugify

from scripts.labcluster.stage import REPO

_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_TO_ELSEWHERE = re.compile(r"[a-z]+:")


def pages() -> list[Path]:
    folders = (REPO / "docs", REPO / "examples", REPO / "slurm_plugin")
    return [*REPO.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]


def links(page: Path) -> Iterator[str]:
    for found in _LINK.findall(_CODE.sub("", page.read_text())):
        if not _TO_ELSEWHERE.match(link := "".join(found)):
            yield link


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings: a site's and a repository's are the same here."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = (re.sub(r"\[(.*?)\]\(.*?\)", r"\1", one) for one in _HEADING.findall(text))
    return {slugify(one.replace("`", ""), "-") for one in headings}


def broken(page: Path) -> Iterator[str]:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield f"{page.relative_to(REPO)}: {link}"


def test_every_link_leads_to_a_file_and_a_heading_that_exist() -> None:
    found = [one for page in pages() for one in broken(page)]
    assert len(pages()) > 30
    assert found == []
