"""Packs what an element needs of our package into one file: ``zip_element.py FOLDER FILE``.

It is not compressed, because every import reads it. It has no times, so that it is always the same.
"""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZipFile, ZipInfo

_PARTS = ("bftrainer_slurm-*.dist-info/*", "bftrainer_slurm/*.py")
_WHOLE = ("bftrainer_slurm/keeper", "bftrainer_slurm/elastic")


def pack(folder: Path, file: Path) -> None:
    """Write the file, from a folder that install-python has made."""
    found = [path for part in _PARTS for path in folder.glob(part)]
    found += [path for whole in _WHOLE for path in (folder / whole).rglob("*.py")]
    with ZipFile(file, "w") as packed:
        for path in sorted(found):
            about = ZipInfo(path.relative_to(folder).as_posix())
            about.external_attr = 0o644 << 16
            packed.writestr(about, path.read_bytes())


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
