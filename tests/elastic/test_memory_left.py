"""How much memory a job has left."""

from pathlib import Path

import pytest

from bftrainer_slurm.elastic.memory_left import memory_left

MEMINFO = "MemTotal: 100 kB\nMemAvailable:     90 kB\n"


@pytest.mark.parametrize(
    ("cgroup", "files", "left"),
    [
        ("0::/\n", {}, 90 * 1024),
        ("0::/job/step\n", {"job/memory.max": 50000, "job/memory.current": 30000}, 21000),
        ("0::/job\n", {"job/memory.max": "max", "job/memory.current": 30000}, 90 * 1024),
        (
            "3:cpu,memory:/job\n1:name=systemd:/\n",
            {"memory/job/memory.limit_in_bytes": 9000, "memory/job/memory.usage_in_bytes": 4000},
            6000,
        ),
    ],
    ids=["no limit", "of the job", "a job without one", "cgroup v1"],
)
def test_a_job_has_as_much_memory_left_as_its_host_and_its_limits_say(
    tmp_path: Path, cgroup: str, files: dict[str, object], left: int
) -> None:
    all_files = {"proc/meminfo": MEMINFO, "proc/self/cgroup": cgroup}
    for name, text in files.items():
        all_files[f"sys/fs/cgroup/{name}"] = f"{text}\n"
        folder = name.rpartition("/")[0]
        all_files[f"sys/fs/cgroup/{folder}/memory.stat"] = "anon 7\ninactive_file 1000\n"
    for name, text in all_files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_left(tmp_path) == left
