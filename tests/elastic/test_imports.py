"""What a warm worker has imported before its script does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.rendezvous import imports


@pytest.mark.parametrize("options", [(), ("--nproc-per-node", "2"), ("--rdzv-backend=bftrainer",)])
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from transformers import Trainer\n", ["transformers.Trainer", "transformers"]),
        ("def main():\n    import lightning as L\n", ["lightning.pytorch"]),
        ("import datasets, pandas, my_module\n", []),  # nobody knows whether these can be forked
        ("from .transformers import Trainer\n", []),
        ("import accelerate\n", []),
        ("not Python\n", []),
    ],
    ids=["a framework", "in a function", "others", "relative", "of the same name", "no Python"],
)
def test_a_frameworks_modules_are_found_and_others_are_left_to_the_script(
    tmp_path: Path, text: str, found: list[str], options: tuple[str, ...]
) -> None:
    (script := tmp_path / "train.py").write_text(text)
    (tmp_path / "accelerate.py").touch()
    of_script = imports.of_script(["torchrun", *options, str(script), "--folder", "x"])
    assert set(found) <= set(of_script)
    assert found or not of_script


@pytest.mark.parametrize("words", [["--no-such-option"], ["-m", "package"], [], ["gone.py"]])
def test_a_command_line_without_a_script_that_can_be_read_is_no_fault(words: list[str]) -> None:
    assert imports.of_script(["torchrun", *words]) == []


def test_a_name_that_a_module_imports_only_when_it_is_asked_is_loaded() -> None:
    imports.load("concurrent.futures.ProcessPoolExecutor")
    assert "concurrent.futures.process" in sys.modules
