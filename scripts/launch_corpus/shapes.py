"""The scripts in ``corpus``, and what each of them is to come to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "corpus"


@dataclass(frozen=True, slots=True)
class Shape:
    """A batch script: what starts its training, and what is said if that cannot be elastic."""

    name: str
    launcher: str
    told: str = ""  # in its output; empty: its nodes form one group

    @property
    def file(self) -> str:
        """The script's name in the folder."""
        return f"{self.name}.sh"


def _read(path: Path) -> Shape | None:
    """Return the shape that a script's first comments describe; None: others call this script."""
    said = dict[str, str]()
    for line in path.read_text().splitlines()[1:]:
        key, colon, value = line.removeprefix("# ").partition(": ")
        if not line.startswith("# ") or not colon:
            break
        said[key] = value
    return Shape(path.stem, said["launcher"], said.get("told", "")) if "launcher" in said else None


def shapes() -> dict[str, Shape]:
    """Return all shapes by name, those that form one group first."""
    found = filter(None, map(_read, sorted(FOLDER.glob("*.sh"))))
    return {one.name: one for one in sorted(found, key=lambda one: bool(one.told))}
