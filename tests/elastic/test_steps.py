"""How a script's steps and samples are counted; what it is told that begins again or goes on."""

from __future__ import annotations

import os
import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.optim import Optimizer, optimizer
from torch.utils.data import DataLoader, TensorDataset, dataloader

from bftrainer_slurm.controller.observe.reports import Report, read_report
from bftrainer_slurm.elastic import beginning, resuming, saving, steps
from bftrainer_slurm.elastic import memory as memories
from bftrainer_slurm.elastic.memory import VARIABLE, Memory, StepCounts
from bftrainer_slurm.elastic.progress import Era, measures
from bftrainer_slurm.elastic.steps import Steps, of_this_process, samples_in
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote

pytestmark = pytest.mark.torch

BEGUN = Era(1, frozenset({(1, "n1")}), StepCounts(0, None, 0, 0))
X = torch.zeros(8, 3)


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


def test_the_next_process_goes_on_from_the_counts_and_a_repeated_step_is_no_progress(
    memory: Memory,
) -> None:
    first = Steps(memory)
    for number in (1, 2, 3):
        first.by_script(8, number)
    before = memory.read()
    assert before.lost == 0
    memory.begin()
    assert memory.read().first_s == 0.0
    restarted = Steps(memory)
    for number in (2, 3, 4):
        restarted.by_script(8, number)
    now = memory.read()
    assert (now.steps, now.samples) == (4, 32)
    assert (now.lost, now.lost_samples) == (2, 16)
    assert before.last_s <= now.again_s <= now.first_s


def test_what_is_not_told_is_not_known(memory: Memory) -> None:
    steps.step(samples=32)
    assert memory.read().lost is None, "no step had a number"
    steps.step()
    assert (memory.read().steps, memory.read().samples) == (2, None)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("LOCAL_RANK", "1"), ("BFTRAINER_ELEMENT", None), (VARIABLE, "/proc/self/fd/nowhere")],
    ids=["not the node's first", "outside an element", "its agent is gone"],
)
def test_a_process_that_is_not_to_count_does_nothing(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, variable: str, value: str | None
) -> None:
    monkeypatch.delenv(variable, raising=False)
    if value is not None:
        monkeypatch.setenv(variable, value)
    steps.step(samples=32)
    assert memory.read().steps == 0


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
    assert memories.version_of(memories.Counts) != memories.version_of(memories.Past)
    monkeypatch.setattr(memories, "VERSION", b"bftrainer-steps-00000000")
    for _ in range(3):
        steps.step(samples=32)
        assert not saving.must_save()
    assert capfd.readouterr().err.count("another version of BFTrainer") == 1
    assert memory.read() == Memory.made().read()


def test_processes_that_are_in_no_group_together_train_alone(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    Steps(memory).by_optimizer("one")
    assert not memory.read().alone  # it is the only process
    monkeypatch.setenv("WORLD_SIZE", "3")
    counted = Steps(memory)
    counted.by_optimizer("one")
    assert measures(BEGUN, memory.read())["alone"] == 1.0
    monkeypatch.setattr(steps, "_world", lambda: 3)
    counted.by_optimizer("one")
    assert not memory.read().alone


@pytest.mark.parametrize(
    ("turns", "counted"),
    [
        (["one"] * 3, 3),
        (["one", "other"] * 4, 4),
        (["one", "other", "third"] * 4, 4),
        (["warm-up"] * 3 + ["main"] * 4, 6),  # its first step may as well be another of the old
    ],
    ids=["alone", "two take turns", "three", "one takes over"],
)
def test_optimizers_count_once_a_round(memory: Memory, turns: list[str], counted: int) -> None:
    process = Steps(memory)
    for one in turns:
        process.by_optimizer(one)
    assert (memory.read().steps, memory.read().samples) == (counted, None)


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


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The samples of each batch that torch's loaders have told."""
    iterator = dataloader._BaseDataLoaderIter
    monkeypatch.setattr(iterator, "__next__", iterator.__next__)
    monkeypatch.setattr(optimizer, "register_optimizer_step_post_hook", lambda hook: None)
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    found: list[int] = []
    monkeypatch.setattr(of_this_process(), "given", found.append)
    steps.count()
    yield found


@pytest.mark.parametrize(
    "batch",
    [X, (X, X[0]), [X], {"input_ids": X}, {"ids": ["a", "b"], "x": {"deep": X}}, ("text", X)],
)
def test_a_batch_has_as_many_samples_as_its_first_tensor(batch: object) -> None:
    assert samples_in(batch) == 8


@pytest.mark.parametrize("batch", [None, 3, "text", [], {}, torch.tensor(1.0)])
def test_where_there_is_none_the_samples_are_not_known(batch: object) -> None:
    assert samples_in(batch) == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_each_batch_of_a_loader_is_told_but_for_validation(given: list[int], workers: int) -> None:
    for trains in (True, False):
        with torch.set_grad_enabled(trains):
            list(DataLoader(TensorDataset(torch.zeros(20, 3)), 8, num_workers=workers))
    assert given == [8, 8, 4]


SAMPLES = {
    "what was given since the last step": ("back " + 3 * "given given step ", (3, 8 * 3)),
    "the last batch before the first step, where gradients come in another way": (
        5 * "given " + "step given step given",
        (2, 4 * 2),
    ),
    "none in a step that only makes an optimizer's state": ("still given step", (1, 4)),
    # The second time as torch.distributed.checkpoint does where it saves.
    "a warm-up's first step, whose rate is 0": (2 * "given back still still ", (2, 4 * 2)),
}


@pytest.mark.parametrize(("events", "counted"), SAMPLES.values(), ids=SAMPLES)
def test_a_step_counts(events: str, counted: tuple[int, int]) -> None:
    memory = Memory.made()
    process, one = Steps(memory), torch.optim.AdamW([torch.zeros(1)])
    for event in events.split():
        match event:
            case "given":
                process.given(4)
            case "back":
                process.passes_back()
            case "step" | "still":
                one.param_groups[0]["lr"] = 0.1 if event == "step" else 0.0
                process.by_optimizer(one)
    assert (memory.read().steps, memory.read().samples) == counted


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("skipped", [0, 4])
def test_batches_that_are_skipped_at_the_beginning_are_not_trained(
    monkeypatch: pytest.MonkeyPatch, skipped: int, accumulated: int
) -> None:
    """As a script does that goes on in the middle of an epoch."""
    memory = Memory.made()
    process = Steps(memory)
    monkeypatch.setattr(steps, "_steps", process)
    model = torch.nn.Linear(3, 1)
    for number, (x,) in enumerate(DataLoader(TensorDataset(torch.zeros(32, 3)), batch_size=4)):
        if number >= skipped:
            model(x).sum().backward()
            if (number + 1) % accumulated == 0:
                process.by_optimizer(model)
    assert memory.read().samples == 32 - 4 * skipped


def reported(now: StepCounts) -> Report:
    """What the controller reads of a generation that began 10 s after the first step."""
    told = measures(replace(BEGUN, before=StepCounts(9, None, 1, 10)), now)
    note = Note(NoteKind.PROGRESS, 7, measures=tuple(told.items()))
    found = read_report(NumberedNote(1, 5.0, note), 4)
    assert found is not None
    return found


@pytest.mark.parametrize(("first_s", "pause_s", "again_s"), [(70, 60, 50), (7300, 3600, 3590)])
def test_the_controller_believes_a_pause_of_hours_too(
    first_s: float, pause_s: float, again_s: float
) -> None:
    report = reported(StepCounts(10, None, first_s, first_s, lost=3, again_s=20))
    assert (report.steps, report.pause_s, report.again_s) == (10, pause_s, again_s)


@pytest.mark.parametrize(
    ("from_start", "unsaved_s", "other_ranks"), [(2, None, None), (0, 40.0, None), (0, 40.0, 1.0)]
)
def test_the_controller_believes_what_a_change_loses(
    from_start: int, unsaved_s: float | None, other_ranks: float | None
) -> None:
    now = StepCounts(9, None, 100, 150, from_start=from_start, kept_s=110)
    report = reported(replace(now, other_ranks=bool(other_ranks)))
    told_of = (report.from_start, report.unsaved_s, report.other_ranks)
    assert told_of == (from_start, unsaved_s, other_ranks)


def made_optimizer() -> Optimizer:
    """One with a state."""
    weights = torch.nn.Parameter(torch.ones(1))
    weights.grad = torch.ones(1)
    made = torch.optim.SGD([weights], lr=0.1, momentum=0.9)
    made.step()
    return made


def goes_on(one: Optimizer) -> None:
    one.load_state_dict(one.state_dict())


Live = Callable[..., str]


@pytest.fixture
def live(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Live:
    """Trains two steps on so many ranks as a new process does; returns what the script is told."""
    save, load = torch.save, Optimizer.load_state_dict
    monkeypatch.setattr(resuming, "helping", set())

    def live(does_first: Callable[[Optimizer], object] = lambda one: None, ranks: int = 1) -> str:
        new = {"_watching": False, "_loaded_optimizer": False, "_newest_file_s": 0.0}
        for name, value in {**new, "_emptied": {}}.items():
            monkeypatch.setattr(beginning, name, value)
        monkeypatch.setattr(torch, "save", save)
        monkeypatch.setattr(Optimizer, "load_state_dict", load)
        monkeypatch.setattr(steps, "_world", lambda: ranks)
        memory.begin()
        beginning.watch()
        does_first(one := made_optimizer())
        process = Steps(memory)
        for _ in range(2):
            process.by_optimizer(one)
        return capfd.readouterr().err

    return live


def loads_nothing(folder: Path) -> None:
    """As accelerate has each optimizer load its own state, to move it to the device."""
    goes_on(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1))


AGAIN, NEVER = [0, 0, 1, 0], [0, 0, 0, 0]  # times that it is told, life by life
LIVES: dict[str, tuple[Callable[[Path], object], list[int]]] = {
    "nothing": (lambda folder: None, AGAIN),
    "an optimizer's empty state": (loads_nothing, AGAIN),
    "a model that it fine-tunes": (lambda folder: torch.load(folder / "model.pt"), AGAIN),
    "what Python writes as it imports": (lambda folder: (folder / "m.pyc").read_bytes(), AGAIN),
    "an optimizer's state": (lambda folder: goes_on(made_optimizer()), NEVER),
    "a file that torch saved": (lambda folder: torch.load(folder / "snapshot.pt"), NEVER),
    "any other file of this training": (lambda folder: (folder / "step").read_bytes(), NEVER),
}


@pytest.mark.parametrize(("loads", "told"), LIVES.values(), ids=LIVES)
def test_a_script_that_begins_again_at_each_change_is_told_so_once_whose_processes_load(
    live: Live,
    memory: Memory,
    tmp_path: Path,
    loads: Callable[[Path], object],
    told: list[int],
) -> None:
    names = ("model.pt", "snapshot.pt", "step", "m.pyc")
    for path in (files := [tmp_path / name for name in names]):
        torch.save({"step": 7}, path)
        os.utime(path, (memory.made_s - 60, memory.made_s - 60))  # an earlier job's
    for of_life in told:
        said = live(lambda one: loads(tmp_path))
        assert said.count("has begun at step 0 again") == of_life
        for path in files[1:]:
            torch.save({"step": 7}, path)


def test_the_controller_is_told_how_often_in_a_row_a_script_began_again(
    live: Live, memory: Memory
) -> None:
    told = []
    for does_first in (lambda one: None,) * 3 + (goes_on,):
        live(does_first)
        told.append(measures(BEGUN, memory.read()).get("from_start"))
        memory.begin()
        assert memory.read().from_start is None, "the next process has not begun"
    assert told == [None, 1, 2, 0]


def test_the_controller_is_told_what_was_trained_since_a_checkpoint(
    live: Live, memory: Memory, tmp_path: Path
) -> None:
    live(goes_on)
    process = steps.of_this_process()

    def unsaved_s() -> float | None:
        process.by_optimizer("one")
        return measures(BEGUN, memory.read()).get("unsaved_s")

    assert unsaved_s() is None, "it may save in another way"
    torch.save({"step": 1}, tmp_path / "snapshot.pt")
    kept_s = memory.read().kept_s
    time.sleep(0.05)
    assert unsaved_s() == pytest.approx(memory.read().last_s - kept_s)
    memory.present.savers = 1
    assert unsaved_s() is None, "it saves when its agent asks"


@pytest.mark.usefixtures("live")
def test_the_number_of_a_process_s_first_step_says_that_it_goes_on(memory: Memory) -> None:
    for first in (1, 1, 5):
        memory.begin()
        process = Steps(memory)
        process.by_optimizer(made_optimizer())  # it loads in a way that is not seen
        process.by_script(32, first)
    assert memory.read().from_start == 0


@pytest.mark.parametrize(
    ("mode", "rows", "told"),
    [("w", "", [0, 1, 0]), ("a", "", [0, 0, 0]), ("w", "all of it", [0, 0, 0])],
)
def test_a_file_that_loses_what_was_written_as_it_trained_is_told_once(
    live: Live, memory: Memory, tmp_path: Path, mode: str, rows: str, told: list[int]
) -> None:
    """One that is written whole at each start loses nothing, nor does one of an earlier job."""
    path = tmp_path / "results.txt"
    path.write_text("of an earlier job")
    os.utime(path, (memory.made_s - 60, memory.made_s - 60))

    def begins(one: Optimizer) -> None:
        goes_on(one)
        with path.open(mode) as file:
            file.write(rows)

    for of_life in told:
        said = live(begins)
        path.write_text(rows or "step 7: 0.3")
        assert said.count(f"has begun {path} anew as it started again") == of_life


@pytest.mark.parametrize(
    ("helping", "rate", "told", "is_off"),
    [
        (set(), 0.1, 1, False),
        (set(), 0.05, 1, True),
        ({"rates"}, 0.05, 1, False),
        ({"lightning"}, 0.05, 0, False),
    ],
    ids=["a rate that never changes", "one that does", "ours moves it", "ours counts samples"],
)
def test_another_number_of_ranks_is_told_once_what_it_means(
    live: Live,
    memory: Memory,
    monkeypatch: pytest.MonkeyPatch,
    helping: set[str],
    rate: float,
    told: int,
    is_off: bool,
) -> None:
    def begins(one: Optimizer) -> None:
        goes_on(one)
        one.param_groups[0]["lr"] = rate

    monkeypatch.setattr(resuming, "helping", helping)
    assert live(begins) + live(begins) == ""
    said = live(begins, ranks=3)
    assert said.count("3 ranks go on where 1 had trained") == memory.read().other_ranks == told
    assert ("off its course" in said) == is_off
    assert live(begins, ranks=2) == ""


@pytest.mark.parametrize(("joins_in", "told"), [(1, 1), (2, 0)])
def test_what_another_node_has_told_is_not_told_again(
    live: Live, memory: Memory, monkeypatch: pytest.MonkeyPatch, joins_in: int, told: int
) -> None:
    for generation, ranks, rank in ((joins_in, 3, "1"), (joins_in + 1, 2, "0")):
        memory.past.generation = generation
        monkeypatch.setenv("RANK", rank)
        said = live(goes_on, ranks)
    assert said.count("2 ranks go on where 3 had trained") == told
