"""All kept inputs through all targets, then seeded changes of them; C under its sanitizers.

For millions of inputs that are guided by coverage: ``scripts/run fuzz``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.fuzz import campaign
from tests.fuzz.campaign import changed, kept, replay_in_c
from tests.fuzz.catalogue import BY_NAME, CORPUS, TARGETS, Target
from tests.tools import run_tool

IN_C = [target for target in TARGETS if target.module is None]
IN_PYTHON = [target for target in TARGETS if target.module is not None]
CHANGES = 40_000
EXAMPLES = 400
SEED = 20_260


@pytest.fixture(autouse=True, scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Built anew, beside what a run by hand has built."""
    campaign.BUILD = tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("target", IN_C, ids=lambda target: target.name)
def test_the_plugins_parsers_take_anything(target: Target) -> None:
    outcome = replay_in_c(target, [*target.corpus(), *changed(target, CHANGES, SEED)])
    assert not outcome.said, f"{outcome.crash}: {outcome.said}"
    assert outcome.executions > CHANGES


@pytest.mark.parametrize("target", IN_PYTHON, ids=lambda target: target.name)
def test_what_is_kept_and_what_is_like_it_breaks_nothing(target: Target) -> None:
    function = target.function()
    for data in (*target.corpus(), *changed(target, EXAMPLES, SEED)):
        try:
            function(data)
        except Exception as error:
            raise AssertionError(f"{kept(target, data)} breaks it") from error


def test_what_is_kept_is_small_and_complete() -> None:
    assert {path.stem for path in CORPUS.iterdir()} == set(BY_NAME)
    assert sum(path.stat().st_size for path in CORPUS.iterdir()) < 100_000


def test_a_broken_target_in_c_is_found_out_and_its_input_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "slurm_plugin"
    shutil.copytree(campaign.SOURCES, broken)
    words = (broken / "words.c").read_text()
    assert words.count("i < MAX_SHOWN &&") == 1
    (broken / "words.c").write_text(words.replace("i < MAX_SHOWN &&", ""))
    for name, folder in (("SOURCES", broken), ("BUILD", tmp_path), ("CRASHES", tmp_path)):
        monkeypatch.setattr(campaign, name, folder)
    outcome = replay_in_c(BY_NAME["words"], [b"x" * 99])
    assert "Sanitizer" in outcome.said or "runtime error" in outcome.said
    assert outcome.crash is not None
    assert outcome.crash.read_bytes() == b"x" * 99


def test_the_command_tells_what_it_has_tried() -> None:
    done = run_tool("fuzz", "--seconds", "1", "--target", "option", "--json")
    assert done.returncode == 0, done.stderr
    (outcome,) = json.loads(done.stdout)
    assert outcome["target"] == "option"
    assert outcome["executions"] > 0
    assert outcome["crash"] is None
