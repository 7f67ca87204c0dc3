"""Settings: what a file may say, and the example of one."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from bftrainer_slurm.controller.settings import Settings, SettingsError, rules
from bftrainer_slurm.controller.settings_file import checked, example, read_settings

_KEPT = Path(__file__).resolve().parents[2] / "packaging" / "bftrainer.toml"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bftrainer.toml"


def test_the_command_line_wins_over_the_file_and_that_over_the_defaults(path: Path) -> None:
    said = {"partition": "scavenger", "forward_time_s": 60, "reserve": 0, "hardware": ["a1", "v1"]}
    path.write_text("".join(f"{key} = {value!r}\n" for key, value in said.items()))
    settings = Settings(partition="idle", forward_time_s=60.0, reserve=0, hardware=("a1", "v1"))
    assert read_settings(path, partition="idle", listen=None) == settings
    assert read_settings(None) == Settings()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("forward_time = 60", "forward_time: unknown key; the nearest known one is forward_time_s"),
        ("[controller]", "controller: unknown key; 'bftrainer controller --example' has all"),
        ("reserve = -1\nx = 'a'", "reserve: must be .* GPUs. x: unknown key"),
        ("forward_time_s = nan", "forward_time_s: must be from 0 to 86,400 seconds"),
        ("reserve = -1", "reserve: must be from 0 to 1,000,000 nodes or GPUs"),
        ("reserve = 1.5", "reserve: must be a whole number"),
        ('listen = "6740"', "listen: '6740' is not HOST:PORT"),
        ('listen = "a:1,b"', "listen: 'b' is not HOST:PORT"),
        ('shared = "state"', "shared: 'state' is not an absolute path"),
        ('partition = "a b"', "partition: 'a b' is not a name"),
        ('operator = "no"', "operator: must be true or false"),
        ('forward_time_s = "long"', "forward_time_s: must be a number"),
        ("max_failures = true", "max_failures: must be a whole number"),
        ("queue_interval_s = 0", r"queue_interval_s: must be from 0\.1 to 3,600 seconds"),
        ('gateway = "smoke signals"', "gateway: must be one of"),
        ('objective = "fame"', "objective: .*fame"),
        ('metrics = "6741"', "metrics: '6741' is not HOST:PORT, and not 'off'"),
        ("metrics = 6741", "metrics: must be a text"),
        ("hardware = 7", "hardware: must be a list"),
        ("hardware = [7]", "hardware: must be a list of texts"),
    ],
)
def test_a_bad_setting_is_named(path: Path, text: str, named: str) -> None:
    path.write_text(text)
    with pytest.raises(SettingsError, match=named):
        read_settings(path)


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"[" * 100_000, b"a" * 2_000_000])
def test_a_file_that_is_missing_or_no_toml_is_refused_in_a_line(
    path: Path, content: bytes | None
) -> None:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"bftrainer\.toml: ") as raised:
        read_settings(path)
    assert "\n" not in str(raised.value)


def test_what_the_command_line_says_is_checked_too() -> None:
    with pytest.raises(SettingsError, match="the command line: listen: '6740' is not HOST:PORT"):
        read_settings(None, listen="6740")


@pytest.mark.parametrize(
    ("setting", "address"), [("", "127.0.0.1:6741"), ("off", None), ("ctl:9999", "ctl:9999")]
)
def test_a_sites_page_is_where_the_settings_say(setting: str, address: str | None) -> None:
    assert Settings(metrics=setting).page == address


def test_the_file_in_the_repository_is_the_one_that_the_code_makes() -> None:
    assert _KEPT.read_text() == example(), (
        "bftrainer controller --example > packaging/bftrainer.toml"
    )


def test_as_it_is_it_sets_nothing_and_each_line_taken_as_a_setting_is_the_default() -> None:
    assert tomllib.loads(example()) == {}
    lines = [line[1:] for line in example().splitlines() if line[:1] == "#" and line[1:2] != " "]
    said = checked("example", tomllib.loads("\n".join(lines)))
    assert said == {name: default for name, (default, _) in rules().items()}
