"""What docs/internals/json.md says of the JSON of commands, to hold documents against it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "json.md"
_ROW = re.compile(
    r"^(?P<indent> *)- (?P<keys>`[^`]+`(?:, `[^`]+`)*)(?P<may> °)? \((?P<kinds>[a-z ]+)\)",
    re.MULTILINE,
)
_KINDS = {
    "text": str,
    "number": (int, float),
    "whole": int,
    "list": list,
    "object": dict,
    "yes": bool,
    "no": bool,
    "null": type(None),
}


@dataclass(frozen=True)
class Key:
    """A documented key: its path, what its value may be, and whether it may be missing."""

    path: tuple[str, ...]
    kinds: tuple[str, ...]
    may_miss: bool

    def fits(self, value: object) -> bool:
        """Whether a value is of the documented kind."""
        if "any" in self.kinds:
            return True
        if isinstance(value, bool):
            return "yes" in self.kinds
        return any(isinstance(value, _KINDS[kind]) for kind in self.kinds)  # type: ignore[arg-type]

    def is_at(self, path: Sequence[str]) -> bool:
        """Whether this key is the one at a path; ``*`` stands for any."""
        return len(path) == len(self.path) and all(
            mine in ("*", part) for mine, part in zip(self.path, path, strict=True)
        )


def documented(section: str, page: Path = PAGE) -> list[Key]:
    """Return the keys of a section of a page."""
    text = page.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    found: list[Key] = []
    holders: list[list[tuple[str, ...]]] = [[()]]  # by depth: the objects that have the next keys
    for row in _ROW.finditer(text):
        depth = len(row["indent"]) // 4
        keys = [
            Key((*holder, name), tuple(row["kinds"].split(" or ")), bool(row["may"]))
            for holder in holders[depth]
            for name in re.findall("`(.+?)`", row["keys"])
        ]
        holders[depth + 1 :] = [[(*key.path, *["[]"] * ("list" in key.kinds)) for key in keys]]
        found += keys
    return found


def differences(section: str, *documents: dict[str, Any]) -> list[str]:
    """Return what of these documents the page does not say, and what only the page says."""
    keys = documented(section)
    paths = {path for document in documents for path, _ in _walk(document, (), keys)}
    unseen = [key for key in keys if not any(key.is_at(path) for path in paths)]
    wrong = [text for document in documents for text in surprises(section, document)]
    return wrong + [f"{'.'.join(key.path)} is documented and never printed" for key in unseen]


def surprises(section: str, document: dict[str, Any]) -> list[str]:
    """Return what of a document the page does not say."""
    keys = documented(section)
    wrong = []
    for path, value in _walk(document, (), keys):
        found = [key for key in keys if key.is_at(path)]
        exact = [key for key in found if key.path == path] or found
        if not exact:
            wrong.append(f"{'.'.join(path)} is not documented")
        elif not exact[0].fits(value):
            wrong.append(f"{'.'.join(path)} is {value!r}, not {' or '.join(exact[0].kinds)}")
    return wrong + _missing(document, keys)


def _walk(
    value: Any, path: tuple[str, ...], keys: Sequence[Key]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    if path and path[-1] != "[]":
        yield path, value
    if isinstance(value, dict):
        whole = any(key.path == (*path, "*") and "any" in key.kinds for key in keys)
        named = {key.path[-1] for key in keys if key.path[:-1] == path}
        for name, inner in value.items():
            if whole and name not in named:
                yield (*path, "*"), inner
            else:
                yield from _walk(inner, (*path, name), keys)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner, (*path, "[]"), keys)


def _missing(document: dict[str, Any], keys: Sequence[Key]) -> list[str]:
    """Return keys that must be there and are not."""
    return [
        f"{'.'.join(key.path)} is missing"
        for key in keys
        if not key.may_miss
        for holder in _at(document, key.path[:-1])
        if isinstance(holder, dict) and key.path[-1] not in holder
    ]


def _at(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if not path:
        yield value
    elif path[0] == "[]" and isinstance(value, list):
        for inner in value:
            yield from _at(inner, path[1:])
    elif isinstance(value, dict):
        for name in value if path[0] == "*" else [path[0]]:
            if name in value:
                yield from _at(value[name], path[1:])
