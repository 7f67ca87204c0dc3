"""What docs/internals/json.md says of the JSON of commands, to hold documents against it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "json.md"
_ROW = re.compile(r"^( *)- (`[^`]+`(?:, `[^`]+`)*)( °)? \(([a-z ]+)\)", re.MULTILINE)
_KINDS: dict[str, type | tuple[type, ...]] = {
    "text": str,
    "number": (int, float),
    "whole": int,
    "list": list,
    "object": dict,
    "yes": bool,
    "no": bool,
    "null": type(None),
    "any": object,
}


@dataclass
class Key:
    """A documented key: what its value may be, whether it may be missing, and what is below it."""

    kinds: tuple[str, ...] = ("object",)
    may_miss: bool = False
    below: dict[str, Key] = field(default_factory=dict)
    seen: bool = False

    def surprises(self, value: Any, path: str) -> Iterator[str]:
        """Yield what of a value is not as documented."""
        self.seen = True
        kinds = {"yes", "any"} & {*self.kinds} if isinstance(value, bool) else self.kinds
        if not any(isinstance(value, _KINDS[kind]) for kind in kinds):
            yield f"{path} is {value!r}, not {' or '.join(self.kinds)}"
        for one in value if isinstance(value, list) else [value]:
            if not self.below or not isinstance(one, dict):
                continue
            for name, inner in one.items():
                key = self.below.get(name, self.below.get("*"))
                if key is None:
                    yield f"{path}.{name} is not documented"
                else:
                    yield from key.surprises(inner, f"{path}.{name}")
            must = (name for name, key in self.below.items() if not key.may_miss)
            yield from (f"{path}.{name} is missing" for name in must if name not in one)

    def unseen(self, path: str) -> Iterator[str]:
        """Yield what is documented and was in no document."""
        if not self.seen:
            yield f"{path} is documented and never printed"
        for name, key in self.below.items():
            yield from key.unseen(f"{path}.{name}")


def documented(section: str, page: Path = PAGE) -> Key:
    """Return an object with the keys of a section of a page."""
    text = page.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    holders = [[root := Key()]]  # by depth: the objects that have the next keys
    for indent, names, may_miss, kinds in _ROW.findall(text):
        depth, made = len(indent) // 4, []
        for holder in holders[depth]:
            for name in re.findall("`(.+?)`", names):
                made.append(Key(tuple(kinds.split(" or ")), bool(may_miss)))
                holder.below[name] = made[-1]
        holders[depth + 1 :] = [made]
    return root


def differences(section: str, *documents: dict[str, Any]) -> list[str]:
    """Return what of these documents the page does not say, and what only the page says."""
    root = documented(section)
    wrong = [text for one in documents for text in root.surprises(one, section)]
    return wrong + list(root.unseen(section))
