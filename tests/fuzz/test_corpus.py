"""All kept inputs through all targets, then seeded changes of them; C under its sanitizers.

For millions of inputs that are guided by coverage: ``scripts/run fuzz``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import campaign
from tests.fuzz.campaign import replay_in_c
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
    outcome = replay_in_c(target, target.corpus(), CHANGES, SEED)
    assert not outcome.said, f"{outcome.crash}: {outcome.said}"
    assert outcome.executions > CHANGES


@pytest.mark.parametrize("target", IN_PYTHON, ids=lambda target: target.name)
def test_what_is_kept_breaks_nothing(target: Target) -> None:
    function = target.function()
    for data in target.corpus():
        function(data)


def like(target: Target) -> st.SearchStrategy[bytes]:
    """Draw pieces of what is kept, of the target's words and of nonsense, one after the other."""
    place = st.integers(0, target.longest)
    kept = st.builds(
        lambda data, at, to: data[at:to], st.sampled_from(target.corpus()), place, place
    )
    words = st.sampled_from([word.encode("latin-1") for word in target.words])
    pieces = st.lists(kept | words | st.binary(max_size=8), max_size=8)
    return pieces.map(lambda found: b"".join(found)[: target.longest])


@pytest.mark.parametrize("target", IN_PYTHON, ids=lambda target: target.name)
def test_what_is_like_it_breaks_nothing(target: Target) -> None:
    function = target.function()
    draw = given(like(target))
    settings(max_examples=EXAMPLES, deadline=None)(draw(lambda data: function(data)))()


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
    outcome = replay_in_c(BY_NAME["words"], [b"x" * 99], 0, SEED)
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
