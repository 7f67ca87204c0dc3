"""Settings that are read again while a controller runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bftrainer_slurm.controller.reloading import Configured
from bftrainer_slurm.controller.settings import Settings, SettingsError


def asked(reread: Callable[[], Settings]) -> tuple[Configured, bool]:
    """The settings after the file was read again, and whether one changed."""
    configured = Configured(Settings(), reread)
    configured.ask()
    return configured, configured.reload_if_asked()


def test_nothing_is_read_unless_that_is_asked_for() -> None:
    assert not Configured(Settings(), lambda: Settings(reserve_nodes=1)).reload_if_asked()


def test_what_can_change_while_running_changes() -> None:
    configured, changed = asked(lambda: Settings(reserve_nodes=1, objective="throughput"))
    assert changed
    assert configured.settings == Settings(reserve_nodes=1, objective="throughput")
    assert configured.trouble is None


def test_what_cannot_is_kept_and_named(caplog: pytest.LogCaptureFixture) -> None:
    configured, changed = asked(lambda: Settings(listen="ctl:6740", partition="idle"))
    assert not changed
    assert configured.settings == Settings()
    assert configured.trouble == "wait for a restart: listen, partition"
    assert "wait for a restart: listen, partition" in caplog.text


def test_a_file_that_is_not_right_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def reread() -> Settings:
        raise SettingsError("bftrainer.toml: no")

    configured, changed = asked(reread)
    assert (configured.settings, changed) == (Settings(), False)
    assert configured.trouble == "bftrainer.toml: no; the settings of before hold"
    assert "bftrainer.toml: no" in caplog.text


def test_a_file_that_is_right_again_ends_the_trouble() -> None:
    said = iter([Settings(metrics="off"), Settings()])
    configured = Configured(Settings(), lambda: next(said))
    for trouble in ("wait for a restart: metrics", None):
        configured.ask()
        configured.reload_if_asked()
        assert configured.trouble == trouble
