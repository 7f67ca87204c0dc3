from pathlib import Path

import pytest

from bftrainer_slurm.elastic.environment import element_environment
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.spec import TrainerRecord


def environment(
    slurm: dict[str, str],
    local_address: str | None = None,
    record: TrainerRecord = TrainerRecord(2, 16),  # noqa: B008 - it is frozen
) -> dict[str, str]:
    return element_environment(
        ElementId(12, 3),
        record,
        "12.1",
        "ctl:6740",
        slurm,
        Path("/f"),
        local_address,
    )


def test_an_element_has_its_rendezvous_its_grace_and_output_files_that_go_on() -> None:
    variables = environment({})
    wanted = {
        "PET_RDZV_BACKEND": "bftrainer",
        "PET_RDZV_ID": "12.1",
        "PET_NNODES": "1:16",
        "BFTRAINER_GRACE": "0.5",
        "SLURM_OPEN_MODE": "append",
    }
    assert variables.items() >= wanted.items()
    # Who chooses c10d says where its store is and who hosts it.
    assert not {"PET_RDZV_ENDPOINT", "PET_RDZV_CONF", "PET_LOCAL_ADDR"} & variables.keys()
    assert environment({}, "127.0.0.1")["PET_LOCAL_ADDR"] == "127.0.0.1"


@pytest.mark.parametrize(("gpus", "processes"), [("4", "4"), ("0", "1"), ("", "1"), ("x;y", "1")])
def test_there_is_one_process_a_gpu_or_one(gpus: str, processes: str) -> None:
    assert environment({"SLURM_GPUS_ON_NODE": gpus})["PET_NPROC_PER_NODE"] == processes


@pytest.mark.parametrize(("before", "after"), [(None, "/f"), ("", "/f"), ("/a::/b", "/f:/a::/b")])
def test_our_folder_comes_first_in_the_users_path(before: str | None, after: str) -> None:
    variables = environment({} if before is None else {"PYTHONPATH": before})
    assert (variables["PET_RDZV_BACKEND"], variables["PYTHONPATH"]) == ("bftrainer", after)
