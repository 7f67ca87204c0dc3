from pathlib import Path

import pytest

from bftrainer_slurm.controller.settings import Settings, SettingsError, read_settings


def test_without_a_file_the_defaults_hold() -> None:
    assert read_settings(None) == Settings()


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bftrainer.toml"
    path.write_text('partition = "scavenger"\nforward_time_s = 60\n')
    settings = read_settings(path, partition="idle", listen=None)
    assert (settings.partition, settings.forward_time_s) == ("idle", 60.0)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("forward_time = 60", "unknown key 'forward_time'"),
        ('forward_time_s = "long"', "forward_time_s must be a float"),
        ("forward_time_s = -1", "forward_time_s must be above 0"),
        ("max_failures = true", "max_failures must be a int"),
        ("partition = [", "bftrainer.toml"),
        ('gateway = "smoke signals"', "gateway must be one of"),
        ('objective = "fame"', "objective: .*fame"),
        ('metrics = "6741"', "metrics: '6741' is not HOST:PORT, and not 'off'"),
        ("metrics = 6741", "metrics must be a str"),
        ("hardware = 7", "hardware must be a list"),
        ("hardware = [7]", "hardware must be a list of texts"),
    ],
)
def test_a_bad_setting_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "bftrainer.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=named):
        read_settings(path)


def test_kinds_of_hardware_are_a_list(tmp_path: Path) -> None:
    path = tmp_path / "bftrainer.toml"
    path.write_text('hardware = ["a100", "v100"]')
    assert read_settings(path).hardware == ("a100", "v100")


def test_a_forward_time_in_the_file_is_kept_to(tmp_path: Path) -> None:
    path = tmp_path / "bftrainer.toml"
    path.write_text("forward_time_s = 60")
    assert not read_settings(path).adapt_forward_time
    assert read_settings(None).adapt_forward_time


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.toml"):
        read_settings(tmp_path / "absent.toml")


def test_at_rest_slurmctld_is_asked_no_more_than_twelve_times_a_minute() -> None:
    settings = Settings()
    rpcs = (
        2 * 60 / settings.queue_interval_s
        + 2 * 60 / settings.nodes_interval_s
        + 60 / settings.reservations_interval_s
    )
    assert rpcs <= 12


def test_what_may_be_left_out_may_be_zero_and_what_may_not_may_not(tmp_path: Path) -> None:
    path = tmp_path / "bftrainer.toml"
    path.write_text("min_idle_s = 0\nreserve_nodes = 0")
    assert read_settings(path).reserve_nodes == 0
    path.write_text("queue_interval_s = 0")
    with pytest.raises(SettingsError, match="above 0"):
        read_settings(path)
