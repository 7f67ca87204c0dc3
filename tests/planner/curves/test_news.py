"""When a trainer's curve is fitted again."""

from __future__ import annotations

from bftrainer_slurm.planner.curves import LatestFit, Measurement

MINUTE = [Measurement(4, 400.0, 30.0)] * 2


def test_a_fit_is_kept_while_nothing_new_is_measured() -> None:
    latest = LatestFit()
    assert latest.update(MINUTE) is latest.update(list(MINUTE))


def test_noise_is_no_news() -> None:
    latest = LatestFit()
    before = latest.update(MINUTE)
    noisy = [Measurement(4, 400.0 * 1.05, 30.0)] * 2
    assert latest.update(noisy) is before


def test_a_new_size_is_news_once_it_is_measured_for_half_a_minute() -> None:
    latest = LatestFit()
    before = latest.update(MINUTE)
    assert latest.update([*MINUTE, Measurement(8, 700.0, 20.0)]) is before
    assert latest.update([*MINUTE, Measurement(8, 700.0, 30.0)]).has_measured(8)


def test_much_more_time_on_a_size_is_news() -> None:
    latest = LatestFit()
    before = latest.update(MINUTE)
    after = latest.update(MINUTE * 2)
    assert after is not before
    assert after.uncertainty(4) < before.uncertainty(4)


def test_a_trainer_that_has_changed_is_news() -> None:
    latest = LatestFit()
    latest.update(MINUTE)
    assert latest.update([Measurement(4, 200.0, 30.0)] * 2).curve(4).at(4) < 300


def test_of_several_looks_one_straggler_is_no_news() -> None:
    latest = LatestFit()
    before = latest.update(MINUTE * 2)
    assert latest.update([*MINUTE, MINUTE[0], Measurement(4, 100.0, 30.0)]) is before
