"""How a script's steps and samples are counted; what it is told that begins again or goes on.

And the gradient noise scale: what DDP's own reductions tell of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.optim import Optimizer, optimizer
from torch.utils.data import DataLoader, TensorDataset, dataloader

from bftrainer_slurm.controller.observe.reports import read_report
from bftrainer_slurm.elastic import beginning, resuming, saving, steps
from bftrainer_slurm.elastic import memory as memories
from bftrainer_slurm.elastic.memory import VARIABLE, Memory, StepCounts
from bftrainer_slurm.elastic.noise import noise_scale
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


def test_the_agent_reads_what_its_worker_counts_and_what_is_not_told_is_not_known(
    memory: Memory,
) -> None:
    begun_s = time.monotonic()
    for samples in (32, 16):
        steps.step(samples=samples)
    said = memory.read()
    assert (said.steps, said.samples, said.lost) == (2, 48.0, None)
    assert begun_s <= said.first_s <= said.last_s <= time.monotonic()
    steps.step()
    assert (memory.read().steps, memory.read().samples) == (3, None)


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


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("LOCAL_RANK", "1", 0),
        ("BFTRAINER_ELEMENT", None, 0),
        (VARIABLE, "/proc/self/fd/nowhere", 0),
        (VARIABLE, None, 1),
    ],
    ids=["not the node's first", "outside an element", "its agent is gone", "no torchrun's"],
)
def test_a_process_that_is_not_to_count_does_nothing_and_is_told_once_if_nobody_counts(
    memory: Memory,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    variable: str,
    value: str | None,
    told: int,
) -> None:
    monkeypatch.delenv(variable, raising=False)
    if value is not None:
        monkeypatch.setenv(variable, value)
    for _ in range(2):
        steps.step(samples=32)
    assert memory.read().steps == 0
    assert capfd.readouterr().err.count("progress is not reported: ") == told


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
    ("samples", "batch"),
    [
        *((8, x) for x in (X, (X, X[0]), [X], {"input_ids": X}, ("text", X))),
        (8, {"ids": ["a", "b"], "x": {"deep": X}}),
        *((0, none) for none in (None, 3, "text", [], {}, torch.tensor(1.0))),
    ],
)
def test_a_batch_has_as_many_samples_as_its_first_tensor(samples: int, batch: object) -> None:
    assert samples_in(batch) == samples


@pytest.mark.parametrize("workers", [0, 1])
def test_each_batch_of_a_loader_is_told_but_for_validation(given: list[int], workers: int) -> None:
    for trains in (True, False):
        with torch.set_grad_enabled(trains):
            list(DataLoader(TensorDataset(torch.zeros(20, 3)), 8, num_workers=workers))
    assert given == [8, 8, 4]


# Each optimizer's steps; what loaders give, backward passes, and what the script itself says.
STEPS: dict[str, tuple[str, tuple[int, float | None]]] = {
    "each of the only optimizer": ("one one one", (3, None)),
    "one a round where two take turns": (4 * "one other ", (4, None)),
    "one a round of three": (4 * "one other third ", (4, None)),
    # Its first step may as well be another of the old.
    "those of one that takes over": (3 * "warm-up " + 4 * "main ", (6, None)),
    "those alone that the script tells": (3 * "one script ", (3, 3 * 32)),
    "what was given since the last step": ("back " + 3 * "given given adam ", (3, 8 * 3)),
    "the last batch before the first step, where gradients come in another way": (
        5 * "given " + "adam given adam given",
        (2, 4 * 2),
    ),
    "none in a step that only makes an optimizer's state": ("still given adam", (1, 4)),
    # The second time as torch.distributed.checkpoint does where it saves.
    "a warm-up's first step, whose rate is 0": (2 * "given back still still ", (2, 4 * 2)),
}


@pytest.mark.parametrize(("events", "counted"), STEPS.values(), ids=STEPS)
def test_what_counts_is(events: str, counted: tuple[int, float | None]) -> None:
    memory = Memory.made()
    process, adam = Steps(memory), torch.optim.AdamW([torch.zeros(1)])
    for event in events.split():
        match event:
            case "given":
                process.given(4)
            case "back":
                process.passes_back()
            case "script":
                process.by_script(32)
            case "adam" | "still":
                adam.param_groups[0]["lr"] = 0.1 if event == "adam" else 0.0
                process.by_optimizer(adam)
            case another:
                process.by_optimizer(sys.intern(another))  # one is known by its identity
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


LATE = StepCounts(9, None, 100, 150, kept_s=110)


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (StepCounts(10, None, 70, 70, lost=3, again_s=20), {"pause_s": 60, "again_s": 50}),
        (StepCounts(10, None, 7300, 7300, lost=3, again_s=20), {"pause_s": 3600, "again_s": 3590}),
        (replace(LATE, from_start=2), {"from_start": 2, "unsaved_s": None, "other_ranks": None}),
        (replace(LATE, from_start=0), {"from_start": 0, "unsaved_s": 40, "other_ranks": None}),
        (replace(LATE, from_start=0, other_ranks=True), {"unsaved_s": 40, "other_ranks": 1}),
    ],
    ids=["a pause", "one of hours", "that it begins again", "a loss", "a loss on other ranks"],
)
def test_the_controller_believes(now: StepCounts, told: dict[str, float | None]) -> None:
    """Of a generation that began 10 s after the first step."""
    measured = measures(replace(BEGUN, before=StepCounts(9, None, 1, 10)), now)
    note = Note(NoteKind.PROGRESS, 7, measures=tuple(measured.items()))
    report = read_report(NumberedNote(1, 5.0, note), 4)
    assert {name: getattr(report, name) for name in told} == told
    assert getattr(report, "steps", None) == now.steps


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


# The gradient of a mean of samples is known: 3 in each of 100 directions, with a deviation of 30 a
# sample. So the noise scale is 100 * 30**2 / (100 * 3**2) = 100 samples.
BATCH = 32
NOISY = """
import os, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from bftrainer_slurm import elastic

ranks = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", **ranks)
torch.manual_seed(dist.get_rank())
model, plain = (DDP(torch.nn.Linear(100, 1, bias=False)) for _ in range(2))
elastic.measure_noise(model)
for step in range(400):
    samples = 3 + 30 * torch.randn(int(sys.argv[2]), 100)
    for one in (model, plain):
        one.zero_grad()
        one(samples).mean().backward()
    for mine, other in zip(model.parameters(), plain.parameters()):
        assert torch.equal(mine.grad, other.grad)
dist.destroy_process_group()
"""


def noise_of(ranks: int, file: Path) -> float:
    """Return what so many processes have measured, in batches of a step."""
    memory = Memory.made()
    environment = {**os.environ, "WORLD_SIZE": str(ranks), VARIABLE: memory.path}
    environment["BFTRAINER_ELEMENT"] = "7_0"
    processes = [
        subprocess.Popen(
            (sys.executable, "-c", NOISY, str(file), str(BATCH)),
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(ranks)
    ]
    assert [process.wait(120) for process in processes] == [0] * ranks
    return memory.read().noise


def test_the_noise_scale_is_found_and_gradients_are_those_of_ddp(tmp_path: Path) -> None:
    assert noise_of(2, tmp_path / "two") * 2 * BATCH == pytest.approx(100, rel=0.25)
    assert noise_of(1, tmp_path / "one") == 0, "a single rank measures nothing"


def test_gradients_without_a_common_part_tell_nothing() -> None:
    assert noise_scale(4.0, 1.0, 4) == 0
    assert noise_scale(1.0, 1.0, 4) == 0


def test_it_is_reported_in_samples() -> None:
    era = Era(1, frozenset(), StepCounts(10, 640.0, 1.0, 2.0))
    now = StepCounts(30, 1920.0, 3.0, 9.0, noise=2.5)
    assert measures(era, now)["noise"] == 160
    assert "noise" not in measures(era, StepCounts(30, None, 3.0, 9.0, noise=2.5))
