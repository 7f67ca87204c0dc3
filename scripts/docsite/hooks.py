"""What mkdocs calls as it builds the site: pages from elsewhere in the repository, and formulas."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_REPO = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(_REPO))  # mkdocs loads this file by its path only

from scripts.docsite import reference  # noqa: E402

# Files outside docs/, by their page on the site.
_ELSEWHERE = {
    "index.md": "README.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
    "plugin.md": "slurm_plugin/README.md",
}
# Files that pages of the repository link to, by the page that has the same on the site.
_INSTEAD = {"reference/settings.md": "packaging/bftrainer.toml"}
_MADE = {"reference/commands.md": reference.commands, "reference/settings.md": reference.settings}
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add the pages that are not in docs/."""
    for page, source in _ELSEWHERE.items():
        text = re.sub(r"\]\((\.\./)?docs/", "](", (_REPO / source).read_text())
        files.append(File.generated(config, page, content=text))
    for page, make in _MADE.items():
        files.append(File.generated(config, page, content=make()))
    return files


def on_page_markdown(text: str, page: Page, **_: Any) -> str:
    """Return the page with its links to files outside docs/ changed to their pages."""
    up = "../" * page.file.src_uri.count("/")
    for target, source in (_ELSEWHERE | _INSTEAD).items():
        text = re.sub(rf"\]\((\.\./)*{re.escape(source)}", f"]({up}{target}", text)
    return text


def on_page_content(text: str, **_: Any) -> str:
    """Return the page with its formulas as MathML, which needs no JavaScript."""
    return _FORMULA.sub(_formula, text)


def _formula(found: re.Match[str]) -> str:
    display = "block" if found[1] == "div" else "inline"
    return str(convert(html.unescape(found[2]), display=display))
