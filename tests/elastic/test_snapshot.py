"""A state in memory: it outlives the processes that train, and nothing is left of it on a node."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from bftrainer_slurm.elastic import saving
from bftrainer_slurm.elastic import snapshot as of
from bftrainer_slurm.elastic.memory import Memory
from bftrainer_slurm.elastic.snapshot import Snapshot
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic.agents import Agents, started_agents

pytestmark = pytest.mark.torch


class Training:
    """A model, its optimizer and scheduler in a new process, as it seems to them."""

    def __init__(self, path: str | Path = "", width: int = 4, **options: Any) -> None:
        of._numbers = itertools.count()
        torch.manual_seed(0)
        convolution = nn.Conv2d(3, width, 3).to(memory_format=torch.channels_last)
        self.model = nn.Sequential(convolution, nn.BatchNorm2d(width))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 3)
        parts = {"optimizer": self.optimizer, "scheduler": self.scheduler}
        self.snapshot = Snapshot(path, model=self.model, **parts, **{"every_s": 1e-9, **options})

    def step(self, place: object = None, **options: bool) -> None:
        self.optimizer.zero_grad()
        self.model(torch.randn(2, 3, 8, 8)).square().sum().backward()
        self.optimizer.step()
        self.scheduler.step()
        self.snapshot.save(place, **options)

    def tensors(self) -> list[torch.Tensor]:
        return of._tensors_of([self.model.state_dict(), self.optimizer.state_dict()])


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """The memory of an agent that this process is."""
    monkeypatch.setenv(of.VARIABLE, of.made())
    paths = list(map(Path, os.environ[of.VARIABLE].split(":")))
    yield paths
    for path in paths:
        os.close(int(path.name))


def test_a_new_process_has_the_state_and_the_place_of_the_one_before(slots: list[Path]) -> None:
    before, after = Training(), Training()
    assert before.snapshot.load() is None
    for number in range(3):
        before.step({"trained": number, "order": torch.arange(number)})
    place = after.snapshot.load()
    assert place["trained"] == 2
    assert place["order"].tolist() == [0, 1]
    for one, other in zip(before.tensors(), after.tensors(), strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
    assert before.scheduler.state_dict() == after.scheduler.state_dict()


def test_what_is_loaded_is_no_part_of_the_memory(slots: list[Path]) -> None:
    before, after = Training(), Training()
    before.step(1)
    after.snapshot.load()
    for one in after.tensors():
        one.detach().zero_()
    assert Training().snapshot.load() == 1


@pytest.mark.parametrize("at", [0, 8, 30, 70, -300], ids=lambda at: f"byte {at}")
def test_of_a_state_that_is_not_whole_the_older_one_counts(
    slots: list[Path], at: int, capfd: pytest.CaptureFixture[str]
) -> None:
    training = Training()
    for number in range(4):  # the last one is in the second slot
        training.step(number)
    raw = bytearray(slots[1].read_bytes())
    raw[at] ^= 1
    slots[1].write_bytes(raw)
    assert Training().snapshot.load() == 2
    assert "a state in memory is not used: it is not whole" in capfd.readouterr().err
    slots[0].write_bytes(bytes(len(raw)))
    assert Training().snapshot.load() is None


def test_a_process_that_is_killed_as_it_saves_leaves_the_older_state(
    slots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training()
    for number in range(3):
        training.step(number)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(of, "_sum", Mock(side_effect=KeyboardInterrupt))
        training.step(3)
    after = Training()
    assert after.snapshot.load() == 2
    after.step(7)  # over the one that is not whole
    assert Training().snapshot.load() == 7


@pytest.mark.parametrize("differs", ["shapes", "names", "types"])
def test_another_models_state_is_not_loaded(
    slots: list[Path], differs: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Training().step(1)
    other = Training(width=5 if differs == "shapes" else 4)
    if differs == "names":
        other.model.register_buffer("another", torch.zeros(1))
    if differs == "types":
        other.model.bfloat16()
    assert other.snapshot.load() is None
    lines = capfd.readouterr().err.splitlines()
    assert [line.partition("not used: ")[2] for line in lines] == [of._ANOTHER]


def test_it_is_saved_after_each_step_where_steps_take_much_longer_than_they_did(
    slots: list[Path],
) -> None:
    training = Training(every_s=0.5)
    for number in range(3):
        training.step(number)
    assert Training().snapshot.load() == 0
    time.sleep(1.5)
    training.step(3)
    assert Training().snapshot.load() == 3


def test_a_restart_does_not_change_when_the_next_copy_is_due(slots: list[Path]) -> None:
    training = Training(every_s=100)
    time.sleep(0.1)
    training.step(1)
    due = training.snapshot._next
    assert 1 < due <= 1001
    after = Training(every_s=100)
    assert after.snapshot.load() == 1
    after.step(2)
    assert after.snapshot._next == due
    assert Training().snapshot.load() == 1


def test_between_two_copies_a_process_holds_nothing_of_the_agents_memory(slots: list[Path]) -> None:
    training = Training()
    for number in range(3):
        training.step(number)
    own = [one for one in memfds() if one.startswith(f"/proc/{os.getpid()}/")]
    assert len(own) == len(slots)  # those of the agent, which is this process


def test_that_memory_is_allotted_is_no_part_of_that_time_and_that_it_is_opened_is(
    slots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    training, opened = Training(), of._opened

    def slowly(path: Path, size: int) -> torch.Tensor:
        time.sleep(1)
        return opened(path, size)

    monkeypatch.setattr(of, "_opened", slowly)
    counts_from_s = []
    for number in range(3):
        begin_s = time.monotonic()
        training.step(number)
        counts_from_s.append(training.snapshot._begin_s - begin_s)
    assert [one > 0.9 for one in counts_from_s] == [True, True, False]


def test_all_of_save_takes_one_percent_of_the_time_with_the_disk_and_the_waiting_for_others(
    slots: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0

    def taking(seconds: float, do: Callable[..., Any]) -> Callable[..., Any]:
        def done(*values: Any) -> Any:
            nonlocal now_s
            now_s += seconds
            return do(*values)

        return done

    monkeypatch.setattr(of, "time", SimpleNamespace(monotonic=lambda: now_s, time=time.time))
    training = Training(tmp_path / "checkpoint.pt", every_s=0)
    now_s += 1
    training.step(0)
    monkeypatch.setattr(of, "_packed", taking(0.2, of._packed))
    monkeypatch.setattr(of, "_texts_of", taking(0.3, of._texts_of))  # twice, if the disk is due
    monkeypatch.setattr(of, "_gathered", taking(0.1, of._gathered))
    saving_s, begin_s = 0.0, now_s
    for number in range(2000):
        now_s += 1
        from_s = now_s
        training.snapshot.save(number)
        saving_s += now_s - from_s
        training.snapshot._wait()
    assert 0.008 < saving_s / (now_s - begin_s) < 0.011


def test_where_memory_is_short_one_line_says_so_and_the_disk_is_used(
    slots: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(of, "memory_left", lambda: 1000)
    training = Training(tmp_path / "checkpoint.pt")
    training.step(1)
    training.step(2, now=True)
    lines = capfd.readouterr().err.splitlines()
    assert lines == [
        f"bftrainer: elastic.Snapshot keeps nothing in memory, only {tmp_path}/checkpoint.pt: "
        "it takes 0.0 GB, 0.0 GB are left"
    ]
    assert slots[0].stat().st_size == slots[1].stat().st_size == 0
    assert Training(tmp_path / "checkpoint.pt").snapshot.load() == 2


def test_where_nothing_is_in_memory_training_ends_when_its_state_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = of._to_disk

    def slowly(path: Path, state: Any) -> None:
        time.sleep(1)
        write(path, state)

    monkeypatch.setattr(of, "_to_disk", slowly)
    monkeypatch.setattr(saving, "_before_end", [])
    saver = SimpleNamespace(saved=lambda: None, memory=Memory.made())
    monkeypatch.setattr(saving, "_saver", saver)
    Training(path := tmp_path / "checkpoint.pt").step(1)
    saving.saved()
    assert Training(path).snapshot.load() == 1


def test_outside_a_trainer_it_is_the_checkpoint_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    training = Training(path)
    assert training.snapshot.load() is None
    training.step(1)
    assert not path.exists()
    training.step(2, now=True)
    training.step(3, now=True)
    assert sorted(one.name for one in tmp_path.iterdir()) == [path.name, f"{path.name}.before"]
    assert torch.load(path, weights_only=True)["parts"]["model"].keys()
    assert Training(path).snapshot.load() == 3
    path.write_bytes(path.read_bytes()[:1000])
    after = Training(path)
    assert after.snapshot.load() == 2
    for one, other in zip(after.model.buffers(), training.model.buffers(), strict=True):
        assert one.shape == other.shape


@pytest.mark.parametrize("links", [True, False])
def test_there_is_a_checkpoint_at_each_moment_after_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    path = tmp_path / "checkpoint.pt"
    training = Training(path)
    training.step(1, now=True)
    replace, seen = Path.replace, list[bool]()

    def looked(one: Path, other: Path) -> Path:
        replaced = replace(one, other)
        seen.append(path.exists())
        return replaced

    def refused(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(Path, "replace", looked)
    if not links:
        monkeypatch.setattr(Path, "hardlink_to", refused)
    training.step(2, now=True)
    assert seen == [True, True]
    assert sorted(one.name for one in tmp_path.iterdir()) == [path.name, f"{path.name}.before"]


def test_it_is_written_to_disk_every_so_often(tmp_path: Path) -> None:
    training = Training(tmp_path / "checkpoint.pt", disk_every_s=0.0)
    training.step(1)
    training.snapshot._wait()
    assert Training(tmp_path / "checkpoint.pt").snapshot.load() == 1


def test_a_disk_that_is_newer_than_a_memory_of_long_ago_counts(
    slots: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint.pt"
    Training(path).step(1)
    monkeypatch.delenv(of.VARIABLE)
    other = Training(path)  # on other nodes
    other.step(2)
    other.step(3, now=True)
    monkeypatch.setenv(of.VARIABLE, ":".join(map(str, slots)))
    assert Training(path).snapshot.load() == 1
    assert Training(path, disk_every_s=-1.0).snapshot.load() == 3


def test_a_process_that_was_left_behind_does_not_replace_a_newer_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    behind, other = Training(path), Training(path)
    other.step(1)
    other.step(2, now=True)
    behind.step("one that hung", now=True)
    assert Training(path).snapshot.load() == 2


def test_a_file_that_cannot_be_written_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Training(tmp_path / "none" / "checkpoint.pt").step(1, now=True)
    assert "elastic.Snapshot has not written" in capfd.readouterr().err


class Own:
    pass


@pytest.mark.parametrize("place", [Own(), {"at": Own()}, torch.nn.Linear])
def test_a_place_that_could_not_be_read_without_running_code_is_refused(
    slots: list[Path], place: object
) -> None:
    with pytest.raises(TypeError, match="plain Python values only"):
        Training().step(place)


def test_a_sharded_state_is_refused(slots: list[Path]) -> None:
    class Shard(torch.Tensor):
        pass

    training = Training()
    training.model[0].weight = nn.Parameter(torch.zeros(4, 3, 3, 3).as_subclass(Shard))
    with pytest.raises(TypeError, match=r"torch\.distributed\.checkpoint keeps sharded"):
        training.snapshot.load()


def test_a_second_snapshot_of_a_process_has_no_memory(
    slots: list[Path], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    training = Training()
    monkeypatch.setenv("BFTRAINER_ELEMENT", "7_1")
    Snapshot(model=training.model)
    assert "another Snapshot has it" in capfd.readouterr().err


def test_a_variable_that_means_another_programs_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "others").open("wb") as file:
        monkeypatch.setenv(of.VARIABLE, f"/proc/{os.getpid()}/fd/{file.fileno()}:/proc/0/fd/1")
        Training().step(1)
    assert (tmp_path / "others").read_bytes() == b""


RANKS = """
import os, sys, torch, torch.distributed as dist
from pathlib import Path
from torch import nn
from bftrainer_slurm.elastic import snapshot as of
from bftrainer_slurm.elastic.memory import Memory
rank, folder = int(sys.argv[1]), sys.argv[2]
store = dist.FileStore(f"{folder}/store", 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
torch.manual_seed(0)
def new(differs=0, path="", every_s=1e-9):
    model = nn.Linear(3, 3 + differs)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    of._numbers = iter([0])
    return model, optimizer, of.Snapshot(path, model=model, optimizer=optimizer, every_s=every_s)
def step(model, optimizer):
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
"""
RECEIVES = """
os.environ[of.VARIABLE] = of.made()
of._CHUNK = 64
model, optimizer, snapshot = new()
assert snapshot.load() is None
step(model, optimizer)
snapshot.save("here")
os.environ[of.VARIABLE] = of.made() if rank else os.environ[of.VARIABLE]
after, optimizer, snapshot = new()
after.weight.detach().zero_()
assert snapshot.load() == "here"
assert torch.equal(after.weight, model.weight)
assert len(optimizer.state) == 2
_, _, again = new()
assert again._own(again._fingerprint())[1]["place"] == "here", "it is in the newcomer's memory"
print("ok")
"""
FROM_DISK = """
path = f"{folder}/own-{rank}.pt"
model, optimizer, snapshot = new(path=path)
step(model, optimizer)
snapshot.save("here", now=True)
_, _, snapshot = new(path=path)
assert snapshot.load() == "here"
assert Path(path).exists() == (rank == 0)
print("ok")
"""
AFTER_ONE_STEP = """
import time
os.environ[of.VARIABLE] = of.made()
model, optimizer, snapshot = new(every_s=0)
own_sum = of._sum
of._sum = lambda image: (time.sleep(0.1 * rank), own_sum(image))[1]
for number in range(1, 4):
    step(model, optimizer)
    time.sleep(0.05)
    snapshot.save(number)
found = of._gathered((snapshot._next, snapshot._wait_s))
assert found[0] == found[1] and found[0][0] > 30, found
assert new()[2].load() == 1
print("ok")
"""
DIFFER = """
os.environ[of.VARIABLE] = of.made()
model, optimizer, snapshot = new()
model.weight.detach().add_(rank)
snapshot.save(1)
assert new()[2].load() is None, "a state that is not the same on all is in memory"
_, _, snapshot = new(differs=rank)
try:
    snapshot.load()
except RuntimeError as error:
    assert "differ between ranks" in str(error)
    print("ok")
"""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (RECEIVES, ""),
        (FROM_DISK, ""),
        (AFTER_ONE_STEP, ""),
        (DIFFER, "nothing in memory, only None: weights or optimizers differ between ranks"),
    ],
    ids=[
        "a newcomer receives it",
        "rank 0 alone reads the disk",
        "all copy after the same step",
        "ranks that disagree",
    ],
)
def test_ranks_have_one_state(tmp_path: Path, script: str, said: str) -> None:
    command = [sys.executable, "-c", RANKS + script]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path)],
            env=os.environ | {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        output, errors = rank.communicate(timeout=300)
        assert output == "ok\n", errors
        assert said in errors


def memfds() -> list[str]:
    """Return which processes of this host have memory for a state."""
    found = []
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if of._NAME in str(path.readlink()):
                found.append(str(path))
        except OSError:
            continue
    return found


def states_in_files() -> set[Path]:
    """Return what is in the host's shared memory, but for what every torchrun's queues have."""
    return {path for path in Path("/dev/shm").iterdir() if not path.name.startswith("sem.")}


@pytest.fixture
def agents(keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agents]:
    monkeypatch.setenv("KEEPS_STATE", "yes")
    with started_agents(keeper, tmp_path / "trainer") as running:
        running.own(3)
        yield running


def test_after_a_kill_the_others_go_on_from_their_memory(agents: Agents) -> None:
    """Of a node's two processes one keeps the state."""
    agents.train_on(1, 2, PET_NPROC_PER_NODE="2")
    agents.wait_for_steps(1)
    agents.kill(2)
    agents.wait_for_world(2, 1)
    last = max(one.number for one in agents.steps(1) if one.world == 4)
    first = min(one.number for one in agents.steps(1) if one.world == 2)
    assert last - 1 <= first <= last + 1


def worker_of(agents: Agents) -> int:
    return agents.steps(1)[-1].process


ENDS: dict[str, Callable[[Agents], object]] = {
    "SIGTERM to all": lambda agents: agents.signal_all(1, signal.SIGTERM),
    "SIGKILL to all": lambda agents: agents.signal_all(1, signal.SIGKILL),
    "SIGTERM to the agent": lambda agents: agents.signal(1, signal.SIGTERM),
    "SIGKILL to the agent": lambda agents: agents.signal(1, signal.SIGKILL),
}


@pytest.mark.parametrize("how", ENDS)
def test_nothing_is_left_on_a_node(agents: Agents, how: str) -> None:
    before = states_in_files()
    agents.start(1)
    agents.wait_for_steps(1)
    assert memfds()
    ENDS[how](agents)
    agents.processes[1].wait(120)
    wait_until(lambda: not memfds(), otherwise="memory is left")
    assert states_in_files() == before


def test_a_worker_that_is_killed_leaves_its_state_to_the_next(agents: Agents) -> None:
    agents.start(1)
    agents.wait_for_steps(1)
    killed = worker_of(agents)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: worker_of(agents) != killed)
    numbers = [one.number for one in agents.steps(1)]
    assert all(after >= before for before, after in itertools.pairwise(numbers))
    agents.kill(1)
    wait_until(lambda: not memfds(), otherwise="memory is left")
