"""Where a site's settings stand: a file in one of two places, and the plugin's line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bftrainer_slurm.cli import main, site
from bftrainer_slurm.cli.site import site_file, site_keeper, site_settings
from bftrainer_slurm.controller.settings import Settings, SettingsError


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of slurm.conf; /etc/bftrainer is ``etc`` beside it."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    (tmp_path / "etc").mkdir()
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    monkeypatch.setattr(site, "_ETC", tmp_path / "etc")
    return folder


def line(slurm: Path, options: str) -> None:
    (slurm / "plugstack.conf").write_text("include our.conf\n")
    (slurm / "our.conf").write_text(f"optional /x/bftrainer.so {options}\n")


@pytest.mark.parametrize("place", ["slurm", "etc"])
def test_the_file_is_beside_slurm_conf_or_in_etc(slurm: Path, place: str) -> None:
    path = slurm.parent / place / "bftrainer.toml"
    path.write_text('partition = "idle"\n')
    assert site_file() == path
    assert site_settings().partition == "idle"


def test_what_cannot_be_used_is_named(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("slurm", "etc"):
        (slurm.parent / place / "bftrainer.toml").write_text("")
    with pytest.raises(SettingsError, match="is there too; keep one of them"):
        site_settings()
    line(slurm, "keeper=HOST")
    with pytest.raises(SettingsError, match=r"plugstack\.conf: listen: 'HOST' is not HOST:PORT"):
        site_settings()
    monkeypatch.setenv("SLURM_CONF", f"/{'x' * 300}/slurm.conf")
    with pytest.raises(SettingsError, match="File name too long"):
        site_file()


def test_what_the_plugins_line_says_need_not_be_said_again_and_the_file_counts_first(
    slurm: Path,
) -> None:
    line(slurm, "keeper=ctl:6740 partition=idle qos=low munge_socket=/run/munge max_grace=30")
    wanted = Settings(listen="ctl:6740", partition="idle", qos="low", munge_socket="/run/munge")
    assert site_settings() == wanted
    (slurm / "bftrainer.toml").write_text('partition = "bftrainer"\n')
    assert site_settings() == replace(wanted, partition="bftrainer")


def test_users_need_only_that_one_of_both_names_the_keeper(slurm: Path) -> None:
    assert site_keeper() is None
    line(slurm, "python=/x")
    assert site_keeper() is None
    line(slurm, "keeper=ctl:6740")
    assert site_keeper() == Settings(listen="ctl:6740")
    (slurm / "bftrainer.toml").write_text('listen = "ctl:6741"\ncolour = "red"\n')
    assert site_keeper() == Settings(listen="ctl:6741")


def test_a_check_says_that_all_is_right_and_what_differs_from_the_defaults(slurm: Path) -> None:
    def checked() -> tuple[int, list[str]]:
        result = CliRunner().invoke(main, ["controller", "--check"])
        return result.exit_code, result.stdout.splitlines()

    assert checked()[1][0].startswith(f"no {slurm}/bftrainer.toml or /")
    line(slurm, "keeper=ctl:6740")
    (slurm / "bftrainer.toml").write_text("reserve = 2\n")
    right = f"{slurm}/bftrainer.toml: all is right"
    assert checked() == (0, [right, 'listen = "ctl:6740"', "reserve = 2"])
