from __future__ import annotations

import os
import sys
import time
import timeit
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from bftrainer_slurm.controller.observe.reports import read_report
from bftrainer_slurm.elastic import beginning, resuming, saving, steps
from bftrainer_slurm.elastic import memory as memories
from bftrainer_slurm.elastic.memory import VARIABLE, Memory, StepCounts
from bftrainer_slurm.elastic.progress import Era, measures
from bftrainer_slurm.elastic.steps import Steps
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote

pytestmark = pytest.mark.torch

NODES = frozenset({(1, "n1")})


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """An agent's memory, told to this process as to a worker."""
    made = Memory.made()
    monkeypatch.setenv("BFTRAINER_ELEMENT", "12_3")
    monkeypatch.setenv(VARIABLE, made.path)
    monkeypatch.setattr(steps, "_steps", None)
    return made


def test_the_agent_reads_what_its_worker_counts(memory: Memory) -> None:
    begun_s = time.monotonic()
    steps.step(samples=32)
    steps.step(samples=16)
    said = memory.read()
    assert (said.steps, said.samples) == (2, 48.0)
    assert begun_s <= said.first_s <= said.last_s <= time.monotonic()


def test_the_next_process_goes_on_from_the_counts_of_the_one_before(memory: Memory) -> None:
    Steps(memory).by_script(32)
    last_s = memory.read().last_s
    memory.begin()
    assert memory.read().first_s == 0.0
    Steps(memory).by_script(32)
    said = memory.read()
    assert (said.steps, said.samples) == (2, 64.0)
    assert said.first_s >= last_s


def test_samples_that_are_not_told_make_all_samples_unknown(memory: Memory) -> None:
    steps.step(samples=32)
    steps.step()
    assert (memory.read().steps, memory.read().samples) == (2, None)


def test_only_the_first_process_of_a_node_counts(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    steps.step(samples=32)
    assert memory.read().steps == 0


def test_outside_an_element_nothing_happens(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BFTRAINER_ELEMENT")
    steps.step(samples=32)
    assert memory.read().steps == 0


def test_a_memory_that_is_gone_does_not_hurt(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "/proc/self/fd/nowhere")
    steps.step(samples=32)


def test_a_process_that_no_torchrun_has_started_is_told_once_that_nobody_counts(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(VARIABLE)
    for _ in range(2):
        steps.step(samples=32)
    assert capfd.readouterr().err.count("progress is not reported: ") == 1


def test_an_agent_and_a_worker_of_two_versions_do_without_and_say_so_once(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memories, "VERSION", b"bftrainer-steps-00000000")
    for _ in range(3):
        steps.step(samples=32)
        assert not saving.must_save()
    assert capfd.readouterr().err.count("another version of BFTrainer") == 1
    assert memory.read() == Memory.made().read()


def test_a_layout_of_before_there_were_versions_is_left_alone(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.memfd_create("before")
    os.ftruncate(before, 256 * 4096)
    monkeypatch.setenv(VARIABLE, f"/proc/self/fd/{before}")
    steps.step(samples=32)
    assert not saving.must_save()
    assert not any(os.pread(before, 256 * 4096, 0))


def test_a_layout_with_one_more_number_has_another_version() -> None:
    assert memories.version_of(memories.Counts) != memories.version_of(memories.Past)


def test_processes_that_are_in_no_group_together_train_alone(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Steps(memory)
    counted.by_optimizer("one")
    assert not memory.read().alone  # it is the only process
    monkeypatch.setenv("WORLD_SIZE", "3")
    counted = Steps(memory)
    counted.by_optimizer("one")
    assert memory.read().alone
    assert measures(Era(1, NODES, memory.read()), memory.read())["alone"] == 1.0
    monkeypatch.setattr(steps, "_world", lambda: 3)
    counted.by_optimizer("one")
    assert not memory.read().alone


def test_an_optimizer_alone_counts_every_time(memory: Memory) -> None:
    counted = Steps(memory)
    for _ in range(3):
        counted.by_optimizer("one")
    assert (memory.read().steps, memory.read().samples) == (3, None)


@pytest.mark.parametrize("turns", [["one", "other"], ["one", "other", "third"]])
def test_optimizers_that_take_turns_count_once_a_round(memory: Memory, turns: list[str]) -> None:
    counted = Steps(memory)
    for optimizer in turns * 4:
        counted.by_optimizer(optimizer)
    assert memory.read().steps == 4


def test_an_optimizer_that_takes_over_goes_on_counting(memory: Memory) -> None:
    counted = Steps(memory)
    for optimizer in ["warm-up"] * 3 + ["main"] * 4:
        counted.by_optimizer(optimizer)
    assert memory.read().steps == 6  # the first of the new one may as well be another of the old


def test_the_scripts_own_word_overrides_the_optimizers(memory: Memory) -> None:
    counted = Steps(memory)
    for _ in range(3):
        counted.by_optimizer("one")
        counted.by_script(32)
    assert (memory.read().steps, memory.read().samples) == (3, 96.0)


def test_an_optimizers_count_of_a_step_that_is_repeated_leaves_no_times(memory: Memory) -> None:
    """An optimizer steps before the script says which step that was."""
    Steps(memory).by_script(32, 5)
    memory.begin()
    before = memory.read()
    counted = Steps(memory)
    counted.by_optimizer("one")
    counted.by_script(32, 5)
    said = memory.read()
    assert (said.first_s, said.last_s, said.lost) == (0.0, before.last_s, 1)
    counted.by_optimizer("one")
    counted.by_script(32, 6)
    said = memory.read()
    assert said.first_s == said.last_s > said.again_s > before.last_s


def test_a_step_costs_next_to_nothing(memory: Memory) -> None:
    calls = 20_000
    cost_s = timeit.timeit(lambda: steps.step(samples=32), timer=time.thread_time, number=calls)
    cost_s /= calls
    print(f"a step costs {cost_s * 1e6:.2f} us")
    assert cost_s < 1e-4  # 1 % of a step, at 100 steps/s


@pytest.mark.parametrize(("first_s", "pause_s", "again_s"), [(70, 60, 50), (7300, 3600, 3590)])
def test_the_controller_believes_a_pause_of_hours_too(
    first_s: float, pause_s: float, again_s: float
) -> None:
    era = Era(2, NODES, StepCounts(9, None, 1, 10))
    told = measures(era, StepCounts(10, None, first_s, first_s, lost=3, again_s=20))
    report = read_report(
        NumberedNote(1, 5.0, Note(NoteKind.PROGRESS, 7, measures=tuple(told.items()))), 4
    )
    assert report is not None
    assert (report.steps, report.pause_s, report.again_s) == (10, pause_s, again_s)


def train(memory: Memory, optimizer: torch.optim.Optimizer) -> None:
    """Train two steps in what is a new process to the memory."""
    process = Steps(memory)
    for _ in range(2):
        process.by_optimizer(optimizer)
    memory.begin()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("_watching", False),
        ("_loaded_optimizer", False),
        ("_newest_file_s", 0.0),
        ("_emptied", {}),
    ):
        monkeypatch.setattr(beginning, name, value)
    monkeypatch.setattr(resuming, "helping", set())
    monkeypatch.setattr(torch, "save", torch.save)
    monkeypatch.setattr(torch.optim.Optimizer, "load_state_dict", _LOADS)
    beginning.watch()


_LOADS = torch.optim.Optimizer.load_state_dict


def made_optimizer() -> torch.optim.Optimizer:
    """One with a state."""
    weights = torch.nn.Parameter(torch.ones(1))
    weights.grad = torch.ones(1)
    optimizer = torch.optim.SGD([weights], lr=0.1, momentum=0.9)
    optimizer.step()
    return optimizer


@pytest.mark.usefixtures("watched")
def test_a_script_that_begins_again_at_each_change_is_told_so_once(
    memory: Memory, capfd: pytest.CaptureFixture[str]
) -> None:
    for lives, told in ((1, 0), (2, 0), (3, 1), (4, 0)):
        train(memory, made_optimizer())
        said = capfd.readouterr().err.count("has begun at step 0 again")
        assert said == told, f"life {lives}"


@pytest.mark.usefixtures("watched")
def test_an_empty_state_that_an_optimizer_loads_is_no_checkpoint(
    memory: Memory, capfd: pytest.CaptureFixture[str]
) -> None:
    """As accelerate has each optimizer load its own, to move it to the device."""
    for _ in range(3):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        optimizer.load_state_dict(optimizer.state_dict())
        train(memory, optimizer)
    assert capfd.readouterr().err.count("has begun at step 0 again") == 1


@pytest.mark.usefixtures("watched")
def test_the_controller_is_told_how_often_in_a_row_a_script_began_again(memory: Memory) -> None:
    def told() -> float | None:
        process = Steps(memory)
        process.by_optimizer(optimizer)
        measured = measures(Era(1, NODES, StepCounts(0, None, 0, 0)), memory.read())
        memory.begin()
        assert memory.read().from_start is None, "the next process has not begun"
        return measured.get("from_start")

    optimizer = made_optimizer()
    assert [told() for _ in range(3)] == [None, 1, 2]
    optimizer.load_state_dict(optimizer.state_dict())
    assert told() == 0


@pytest.mark.usefixtures("watched")
def test_the_controller_is_told_what_was_trained_since_a_checkpoint(
    memory: Memory, tmp_path: Path
) -> None:
    optimizer = made_optimizer()
    optimizer.load_state_dict(optimizer.state_dict())
    process = steps.of_this_process()
    era = Era(1, NODES, StepCounts(0, None, 0, 0))

    def unsaved_s() -> float | None:
        process.by_optimizer(optimizer)
        return measures(era, memory.read()).get("unsaved_s")

    assert unsaved_s() is None, "it may save in another way"
    torch.save({"step": 1}, tmp_path / "snapshot.pt")
    kept_s = memory.read().kept_s
    time.sleep(0.05)
    assert unsaved_s() == pytest.approx(memory.read().last_s - kept_s)
    memory.present.savers = 1
    assert unsaved_s() is None, "it saves when its agent asks"


@pytest.mark.usefixtures("watched")
def test_the_number_of_a_process_s_first_step_says_that_it_goes_on(memory: Memory) -> None:
    for first in (1, 1, 5):
        process = Steps(memory)
        process.by_optimizer(made_optimizer())  # it loads in a way that is not seen
        process.by_script(32, first)
        told = memory.read().from_start
        memory.begin()
    assert told == 0


@pytest.mark.parametrize(
    ("from_start", "unsaved_s", "other_ranks"), [(2, None, None), (0, 40.0, None), (0, 40.0, 1.0)]
)
def test_the_controller_believes_what_a_change_loses(
    from_start: int, unsaved_s: float | None, other_ranks: float | None
) -> None:
    counted = StepCounts(9, None, 100, 150, from_start=from_start, kept_s=110)
    now = replace(counted, other_ranks=bool(other_ranks))
    told = measures(Era(2, NODES, StepCounts(9, None, 1, 10)), now)
    note = Note(NoteKind.PROGRESS, 7, measures=tuple(told.items()))
    report = read_report(NumberedNote(1, 5.0, note), 4)
    assert report is not None
    told_of = (report.from_start, report.unsaved_s, report.other_ranks)
    assert told_of == (from_start, unsaved_s, other_ranks)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("how", ["optimizer", "file", "text"])
def test_a_script_that_goes_on_is_told_nothing(
    memory: Memory, capfd: pytest.CaptureFixture[str], tmp_path: Path, how: str
) -> None:
    optimizer = made_optimizer()
    if how == "optimizer":
        optimizer.load_state_dict(optimizer.state_dict())
    for life in range(4):
        beginning.watch()
        if how == "file" and life:
            torch.load(tmp_path / "snapshot.pt")
        if how == "text" and life:
            assert (tmp_path / "step").read_text() == "7"
        train(memory, optimizer)
        torch.save({"step": 7}, tmp_path / "snapshot.pt")
        (tmp_path / "step").write_text("7")
    assert memory.read().from_start is None, "of the next process"
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("watched")
def test_a_model_that_is_fine_tuned_is_no_checkpoint(
    memory: Memory, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    torch.save({"weights": 7}, tmp_path / "model.pt")
    os.utime(tmp_path / "model.pt", (memory.made_s - 60, memory.made_s - 60))
    for _ in range(3):
        beginning.watch()
        torch.load(tmp_path / "model.pt")
        train(memory, made_optimizer())
    assert "has begun at step 0 again" in capfd.readouterr().err


@pytest.mark.usefixtures("watched")
def test_what_python_writes_as_it_imports_is_no_checkpoint(
    memory: Memory, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for _ in range(3):
        beginning.watch()
        (tmp_path / "model.cpython-311.pyc").touch()
        (tmp_path / "model.cpython-311.pyc").read_bytes()
        train(memory, made_optimizer())
    assert "has begun at step 0 again" in capfd.readouterr().err


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize(
    ("mode", "rows", "told"),
    [("w", "", [0, 1, 0]), ("a", "", [0, 0, 0]), ("w", "all of it", [0, 0, 0])],
)
def test_a_file_that_loses_what_was_written_as_it_trained_is_told_once(
    memory: Memory,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    mode: str,
    rows: str,
    told: list[int],
) -> None:
    """One that is written whole at each start loses nothing, nor does one of an earlier job."""
    path = tmp_path / "results.txt"
    path.write_text("of an earlier job")
    os.utime(path, (memory.made_s - 60, memory.made_s - 60))
    optimizer = made_optimizer()
    optimizer.load_state_dict(optimizer.state_dict())
    for of_life in told:
        beginning._emptied.clear()
        beginning.watch()
        with path.open(mode) as file:
            file.write(rows)
        train(memory, optimizer)
        path.write_text(rows or "step 7: 0.3")
        line = f"has begun {path} anew as it started again"
        assert capfd.readouterr().err.count(line) == of_life


@pytest.mark.usefixtures("watched")
def test_another_number_of_ranks_is_told_once_what_it_means(
    memory: Memory, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer = made_optimizer()
    train(memory, optimizer)
    optimizer.load_state_dict(optimizer.state_dict())
    for ranks, told in ((1, 0), (3, 1), (2, 0)):
        monkeypatch.setattr(steps, "_world", lambda ranks=ranks: ranks)
        train(memory, optimizer)
        said = capfd.readouterr().err
        assert said.count("3 ranks go on where 1 had trained") == told, f"{ranks} ranks"


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("helped", [True, False])
def test_another_number_of_ranks_is_told_unless_ours_counts_samples(
    memory: Memory,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    helped: bool,
) -> None:
    monkeypatch.setattr(resuming, "helping", {"lightning"} if helped else set())
    optimizer = made_optimizer()
    for ranks in (2, 3):
        monkeypatch.setattr(steps, "_world", lambda ranks=ranks: ranks)
        train(memory, optimizer)
        optimizer.load_state_dict(optimizer.state_dict())
    told = capfd.readouterr().err.count("3 ranks go on where 2 had trained")
    assert told == memory.read().other_ranks == (not helped)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("moves", [True, False])
def test_a_rate_that_never_changes_is_not_said_to_be_off_its_course(
    memory: Memory,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    moves: bool,
) -> None:
    optimizer = made_optimizer()
    train(memory, optimizer)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.param_groups[0]["lr"] = 0.05 if moves else 0.1
    monkeypatch.setattr(steps, "_world", lambda: 3)
    train(memory, optimizer)
    said = capfd.readouterr().err
    assert "3 ranks go on where 1 had trained" in said
    assert ("off its course" in said) == moves


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize(("joins_in", "told"), [(1, 1), (2, 0)])
def test_what_another_node_has_told_is_not_told_again(
    memory: Memory,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    joins_in: int,
    told: int,
) -> None:
    optimizer = made_optimizer()
    optimizer.load_state_dict(optimizer.state_dict())
    for generation, ranks, rank in ((joins_in, 3, "1"), (joins_in + 1, 2, "0")):
        memory.past.generation = generation
        monkeypatch.setattr(steps, "_world", lambda ranks=ranks: ranks)
        monkeypatch.setenv("RANK", rank)
        train(memory, optimizer)
    assert capfd.readouterr().err.count("2 ranks go on where 3 had trained") == told


def test_what_is_turned_off_helps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "helping", set())
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in resuming.MODULES:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    resuming.install({"BFTRAINER_RESUME": "no"})
    assert not resuming.counts_samples()
