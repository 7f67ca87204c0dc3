"""What is read from slurmctld's own description of itself."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bftrainer_slurm.slurm.configuration import configuration
from bftrainer_slurm.slurm.run import SlurmRunner


class Says:
    """A slurmctld that is configured so."""

    def __init__(self, private: str) -> None:
        self.private = private

    def read(self, *command: str, **_: Any) -> str:
        if "partition" in command:
            return "PartitionName=bftrainer MaxTime=UNLIMITED\n"
        return f"MaxJobCount             = 10000\nPrivateData             = {self.private}\n"


@pytest.mark.parametrize(
    ("private", "hidden"),
    [("none", False), ("accounts,users", False), ("accounts,jobs", True), ("all", True)],
)
def test_private_data_says_whether_users_see_the_jobs_of_others(private: str, hidden: bool) -> None:
    runner = cast(SlurmRunner, Says(private))
    assert configuration(runner, "bftrainer").jobs_private is hidden
