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


def test_the_command_line_wins_over_the_file(path: Path) -> None:
    path.write_text('partition = "scavenger"\nforward_time_s = 60\n')
    settings = read_settings(path, partition="idle", listen=None)
    assert (settings.partition, settings.forward_time_s) == ("idle", 60.0)


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
        ("partition = [", "bftrainer.toml"),
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


def test_kinds_of_hardware_are_a_list(path: Path) -> None:
    path.write_text('hardware = ["a100", "v100"]')
    assert read_settings(path).hardware == ("a100", "v100")


def test_without_a_file_the_defaults_hold() -> None:
    assert read_settings(None) == Settings()


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000, b"a" * 2_000_000])
def test_a_file_that_is_no_toml_is_refused_in_a_line(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"bftrainer\.toml: ") as raised:
        read_settings(path)
    assert "\n" not in str(raised.value)


def test_what_the_command_line_says_is_checked_too() -> None:
    with pytest.raises(SettingsError, match="the command line: listen: '6740' is not HOST:PORT"):
        read_settings(None, listen="6740")


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(SettingsError, match=r"bftrainer\.toml"):
        read_settings(path)


def test_at_rest_slurmctld_is_asked_no_more_than_twelve_times_a_minute() -> None:
    assert (2 + (2 + 1) / 4) * 60 / Settings().queue_interval_s <= 12


@pytest.mark.parametrize(
    ("setting", "address"), [("", "127.0.0.1:6741"), ("off", None), ("ctl:9999", "ctl:9999")]
)
def test_a_sites_page_is_where_the_settings_say(setting: str, address: str | None) -> None:
    assert Settings(metrics=setting).page == address


def test_what_may_be_left_out_may_be_zero_and_what_may_not_may_not(path: Path) -> None:
    path.write_text("min_idle_s = 0\nreserve = 0")
    assert read_settings(path).reserve == 0
    path.write_text("queue_interval_s = 0")
    with pytest.raises(SettingsError, match=r"must be from 0\.1 to 3,600 seconds"):
        read_settings(path)


def test_the_file_in_the_repository_is_the_one_that_the_code_makes() -> None:
    assert _KEPT.read_text() == example(), (
        "bftrainer controller --example > packaging/bftrainer.toml"
    )


def test_as_it_is_it_sets_nothing_and_each_line_taken_as_a_setting_is_the_default() -> None:
    assert tomllib.loads(example()) == {}
    lines = [line[1:] for line in example().splitlines() if line[:1] == "#" and line[1:2] != " "]
    said = checked("example", tomllib.loads("\n".join(lines)))
    assert said == {name: default for name, (default, _) in rules().items()}
