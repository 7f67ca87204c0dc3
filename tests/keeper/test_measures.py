"""Which numbers a member may report."""

from __future__ import annotations

import pytest

from bftrainer_slurm.keeper.protocol import good_measures


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 1e15, 10**400, -(10**400), True, "1"]
)
def test_what_is_no_number_of_sensible_size_is_left_out(value: object) -> None:
    assert good_measures({"samples": 3, "loss": value}) == (("samples", 3.0),)
