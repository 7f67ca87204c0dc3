"""What a warm worker has imported before its script does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.rendezvous import imports


def of(folder: Path, text: str, *options: str) -> list[str]:
    script = folder / "train.py"
    script.write_text(text)
    return imports.of_script(["torchrun", *options, str(script), "--folder", "x"])


@pytest.mark.parametrize("options", [(), ("--nproc-per-node", "2"), ("--rdzv-backend=bftrainer",)])
def test_what_a_script_imports_of_a_framework_is_found(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    found = of(tmp_path, "from transformers import Trainer\nimport lightning as L\n", *options)
    assert {"transformers.Trainer", "transformers", "lightning.pytorch"} <= set(found)


def test_so_is_what_it_imports_within_a_function(tmp_path: Path) -> None:
    assert "accelerate" in of(tmp_path, "def main():\n    import accelerate\n")


@pytest.mark.parametrize(
    "text",
    [
        "import datasets, pandas, my_module\n",  # nobody knows whether these can be forked
        "from .transformers import Trainer\n",
        "not Python\n",
    ],
)
def test_other_modules_are_left_to_the_script(tmp_path: Path, text: str) -> None:
    assert of(tmp_path, text) == []


def test_so_is_a_module_of_the_users_own_with_a_frameworks_name(tmp_path: Path) -> None:
    (tmp_path / "transformers.py").touch()
    assert of(tmp_path, "import transformers\n") == []


@pytest.mark.parametrize("words", [["--no-such-option"], ["-m", "package"], [], ["gone.py"]])
def test_a_command_line_without_a_script_that_can_be_read_is_no_fault(words: list[str]) -> None:
    assert imports.of_script(["torchrun", *words]) == []


def test_a_name_that_a_module_imports_only_when_it_is_asked_is_loaded() -> None:
    imports.load("concurrent.futures.ProcessPoolExecutor")
    assert "concurrent.futures.process" in sys.modules
