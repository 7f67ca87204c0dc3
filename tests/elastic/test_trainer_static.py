"""The same script where nothing changes: alone, and as ranks of torchrun's or srun's."""

import socket
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from bftrainer_slurm.elastic import Trainer
from bftrainer_slurm.elastic.inprocess.peers import find_peers
from bftrainer_slurm.elastic.inprocess.phases import PeerLostError
from scripts.labcluster.keeper import started_keeper
from tests.elastic.alone import as_new_process
from tests.elastic.workers import Workers, started_workers, wait

pytestmark = pytest.mark.torch

WORLDS = [
    {},
    {"RANK": "0", "WORLD_SIZE": "2"},
    {"BFTRAINER_KEEPER": "127.0.0.1:1", "BFTRAINER_ELEMENT": "7_1"},
]
DATA = TensorDataset(torch.arange(10.0).reshape(10, 1), torch.zeros(10, 1))


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    with started_keeper(tmp_path) as keeper, started_workers(keeper, tmp_path / "run") as started:
        yield started


@pytest.fixture
def alone() -> Iterator[None]:
    with as_new_process():
        yield


def run(workers: Workers, world: int, **options: Any) -> list[int]:
    """Run the script as ranks of a fixed world, and return the exit codes."""
    workers.options = options
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [
        workers.fork(
            f"static.{rank}",
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(world),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            SLURMD_NODENAME=f"n{world}",
        )
        for rank in range(world)
    ]
    return [wait(rank) for rank in ranks]


def test_an_ordinary_script_trains_each_sample_once(workers: Workers) -> None:
    workers.options = {"size": 50, "epochs": 2}
    assert wait(workers.fork("alone", SLURMD_NODENAME="n0")) == 0
    assert {epoch: set(counts.values()) for epoch, counts in workers.trained().items()} == {
        0: {1},
        1: {1},
    }


def test_two_ranks_come_to_the_weights_of_one_with_the_same_global_batch(workers: Workers) -> None:
    """Uneven shares and ranks without any included: 50 samples in steps of 9."""
    options = {"size": 50, "epochs": 3, "batch_size": 9, "batch": "global", "norm": False}
    assert run(workers, 1, **options, seed_weights=True) == [0]
    assert run(workers, 3, **options, seed_weights=True) == [0, 0, 0]
    one = torch.load(workers.folder / "weights.n1.0")
    for rank in range(3):
        many = torch.load(workers.folder / f"weights.n3.{rank}")
        for name in one:
            torch.testing.assert_close(many[name], one[name], rtol=1e-3, atol=1e-5)


def test_a_lost_rank_ends_a_fixed_world(workers: Workers) -> None:
    assert all(code != 0 for code in run(workers, 2, size=50, fail_rank=1))


def trainer(**options: Any) -> tuple[Trainer, torch.optim.Optimizer]:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    return Trainer(model, optimizer, **options), optimizer


def loss(trainer: Trainer, batch: list[Tensor]) -> Tensor:
    return nn.functional.mse_loss(trainer.ddp(batch[0]), batch[1])


def test_randomness_repeats_by_seed_step_and_rank() -> None:
    drawn = []
    for _ in range(2):
        with as_new_process():
            training, optimizer = trainer(seed=3)
            for batch in training.loader(DATA, 5, 1):
                drawn.append(torch.rand(1).item())
                with training.step():
                    loss(training, batch).backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
    assert drawn[:2] == drawn[2:]
    assert drawn[0] != drawn[1]


class Wrapped(torch.optim.Optimizer):
    """An optimizer around another, as accelerate makes them: it has no hooks."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer


def test_an_optimizer_that_a_framework_has_wrapped_is_refused() -> None:
    model = nn.Linear(1, 1)
    with pytest.raises(TypeError, match="give torch's own optimizer"):
        Trainer(model, Wrapped(torch.optim.SGD(model.parameters())))


@pytest.mark.usefixtures("alone")
def test_a_training_may_end_before_its_last_epoch() -> None:
    training, optimizer = trainer()
    for batch in training.loader(DATA, 5, 100, until=lambda: training.cursor.step == 3):
        with training.step():
            loss(training, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    assert training.cursor.samples == 15


@pytest.mark.usefixtures("alone")
def test_a_step_that_is_ready_is_updated_whatever_happens_to_its_peers() -> None:
    training, optimizer = trainer()
    batch = next(iter(training.loader(DATA, 5, 1)))
    with pytest.raises(PeerLostError), training.step() as step:  # a fixed world ends, afterwards
        loss(training, batch).backward()  # type: ignore[no-untyped-call]
        step.make_ready()
        training._group.fail(RuntimeError("as if"))
        optimizer.step()
    assert (step.committed, training.cursor.step) == (True, 1)


@pytest.mark.usefixtures("alone")
def test_a_step_that_a_gradient_scaler_passes_over_counts() -> None:
    scaler = torch.amp.GradScaler("cpu")
    training, optimizer = trainer(scaler=scaler)
    for batch in training.loader(DATA, 5, 1):
        with training.step() as step:
            scaler.scale(loss(training, batch) * float("inf")).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        assert step.committed
        assert not step.updated
    assert training.cursor.samples == 10


def a_part(training: Trainer, batch: list[Tensor], scaler: torch.amp.GradScaler) -> None:
    scaler.scale(loss(training, batch)).backward()  # type: ignore[no-untyped-call]


def unscaled(training: Trainer, batch: list[Tensor], scaler: torch.amp.GradScaler) -> None:
    loss(training, batch).backward()  # type: ignore[no-untyped-call]


def nothing(training: Trainer, batch: list[Tensor], scaler: torch.amp.GradScaler) -> None: ...


def without_ddp(training: Trainer, batch: list[Tensor], scaler: torch.amp.GradScaler) -> None:
    nowhere = torch.tensor(float("inf"), requires_grad=True)
    optimizer = torch.optim.SGD([nowhere])
    scaler.scale(nowhere * 2 * float("inf")).backward()  # type: ignore[no-untyped-call]
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("body", [a_part, unscaled, nothing, without_ddp])
def test_a_gradient_scaler_excuses_no_step_but_those_that_it_passes_over(
    body: Callable[[Trainer, list[Tensor], torch.amp.GradScaler], None],
) -> None:
    scaler = torch.amp.GradScaler("cpu")
    training, _ = trainer(scaler=scaler)
    with pytest.raises(RuntimeError, match=r"one optimizer\.step\(\) in one trainer\.step"):
        for batch in training.loader(DATA, 5, 1):
            with training.step():
                body(training, batch, scaler)
    assert training.cursor.samples == 0


@pytest.mark.usefixtures("alone")
def test_a_step_without_an_update_is_an_error() -> None:
    training, optimizer = trainer()
    with pytest.raises(RuntimeError, match="parts of one larger batch"):
        for number, batch in enumerate(training.loader(DATA, 2, 1)):
            with training.step():
                loss(training, batch).backward()  # type: ignore[no-untyped-call]
                if number % 2:
                    optimizer.step()
    assert training.cursor.samples == 0


@pytest.mark.usefixtures("alone")
def test_a_model_that_is_used_without_ddp_is_an_error() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    training = Trainer(model, optimizer)
    with pytest.raises(RuntimeError, match=r"compute with trainer\.ddp"):
        for batch in training.loader(DATA, 5, 1):
            with training.step():
                nn.functional.mse_loss(model(batch[0]), batch[1]).backward()
                optimizer.step()
    assert training.cursor.samples == 0


def ddp_then_model(training: Trainer, model: nn.Module, x: Tensor) -> None:
    training.ddp(x).sum().backward()
    model(x).sum().backward()


def ddp_then_a_layer(training: Trainer, model: nn.Module, x: Tensor) -> None:
    training.ddp(x).sum().backward()
    next(model.children())(x).sum().backward()


def last_part_under_no_sync(training: Trainer, model: nn.Module, x: Tensor) -> None:
    training.ddp(x).sum().backward()
    with training.ddp.no_sync():
        training.ddp(x).sum().backward()


def one_output_twice(training: Trainer, model: nn.Module, x: Tensor) -> None:
    out = training.ddp(x)
    out.sum().backward(retain_graph=True)
    out.mean().backward()


def both_outputs_first(training: Trainer, model: nn.Module, x: Tensor) -> None:
    first, second = training.ddp(x), training.ddp(x)
    first.sum().backward()
    second.sum().backward()


def model_while_ddp_waits(training: Trainer, model: nn.Module, x: Tensor) -> None:
    out = training.ddp(x)
    model(x).sum().backward()
    out.sum().backward()


def train_by(body: Callable[[Trainer, nn.Module, Tensor], None]) -> None:
    model, optimizers = two_optimizers()
    training = Trainer(model, optimizers)
    for x, _ in training.loader(DATA, 5, 1):
        with training.step() as step:
            body(training, model, x)
            for one in optimizers:
                one.step()
                one.zero_grad()
        assert step.committed


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "body",
    [
        ddp_then_model,
        ddp_then_a_layer,
        last_part_under_no_sync,
        one_output_twice,
        both_outputs_first,
        model_while_ddp_waits,
    ],
)
def test_a_gradient_that_is_a_ranks_own_in_part_is_an_error(
    body: Callable[[Trainer, nn.Module, Tensor], None],
) -> None:
    with pytest.raises(RuntimeError, match=r"add losses up for one backward\(\)"):
        train_by(body)


def parts(training: Trainer, model: nn.Module, x: Tensor) -> None:
    *most, last = x.chunk(3)
    for part in most:
        with training.ddp.no_sync():
            training.ddp(part).sum().backward()
    training.ddp(last).sum().backward()


def several_passes(training: Trainer, model: nn.Module, x: Tensor) -> None:
    for _ in range(2):
        training.ddp(x).sum().backward()


def several_outputs_one_pass(training: Trainer, model: nn.Module, x: Tensor) -> None:
    (training.ddp(x).sum() + training.ddp(2 * x).mean() + model(x).sum()).backward()


def model_then_ddp(training: Trainer, model: nn.Module, x: Tensor) -> None:
    model(x).sum().backward()
    training.ddp(x).sum().backward()


def clipped(training: Trainer, model: nn.Module, x: Tensor) -> None:
    training.ddp(x).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    nn.utils.clip_grad_value_(model.parameters(), 0.01)


def partly_given_up(training: Trainer, model: nn.Module, x: Tensor) -> None:
    training.ddp(x).sum().backward()
    next(model.parameters()).grad = None


def looked_at_beside(training: Trainer, model: nn.Module, x: Tensor) -> None:
    training.ddp(x).sum().backward()
    x = x.clone().requires_grad_()
    torch.autograd.grad(model(x).sum(), x)
    model(x).sum().backward(inputs=[x])


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "body",
    [
        parts,
        several_passes,
        several_outputs_one_pass,
        model_then_ddp,
        clipped,
        partly_given_up,
        looked_at_beside,
    ],
)
def test_gradients_that_are_averages_are_used_whatever_else_a_step_does(
    body: Callable[[Trainer, nn.Module, Tensor], None],
) -> None:
    train_by(body)


@pytest.mark.usefixtures("alone")
def test_gradients_that_are_unscaled_and_clipped_are_averages_still() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    training, optimizer = trainer(scaler=scaler)
    for batch in training.loader(DATA, 5, 1):
        with training.step() as step:
            scaler.scale(loss(training, batch)).backward()  # type: ignore[no-untyped-call]
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(training.ddp.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        assert (step.committed, step.updated) == (True, True)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("thaws", [False, True])
def test_a_frozen_parameter_stays_so_as_ddp_would_not_average_it(thaws: bool) -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    training = Trainer(model, optimizer)
    model[0].requires_grad_(thaws)
    refused = pytest.raises(RuntimeError, match="put it into the model, and give it requires_grad_")
    with refused if thaws else nullcontext():
        for batch in training.loader(DATA, 5, 1):
            with training.step():
                loss(training, batch).backward()  # type: ignore[no-untyped-call]
                optimizer.step()


@pytest.mark.usefixtures("alone")
def test_a_parameter_outside_the_model_is_an_error() -> None:
    model, scale = nn.Linear(1, 1), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([*model.parameters(), scale], lr=0.001)
    training = Trainer(model, optimizer)
    with pytest.raises(RuntimeError, match="put it into the model"):
        for batch in training.loader(DATA, 5, 1):
            with training.step():
                (loss(training, batch) * scale).sum().backward()  # type: ignore[no-untyped-call]
                optimizer.step()


class Drawn(Dataset[Tensor]):
    """Each sample is what its worker draws: an augmentation."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, _: int) -> Tensor:
        return torch.rand(1)


def drawn_by(rank: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    with as_new_process():
        training, _ = trainer()
        data = training.loader(Drawn(), 8, 1, num_workers=1)
        monkeypatch.setattr(type(training), "rank", rank)
        torch.manual_seed(0)  # as each rank's script may do
        return next(iter(data)).flatten().tolist()  # type: ignore[no-any-return]


def test_data_workers_of_two_ranks_draw_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn_by(0, monkeypatch) == drawn_by(0, monkeypatch)
    assert drawn_by(0, monkeypatch) != drawn_by(1, monkeypatch)


@pytest.mark.usefixtures("alone")
def test_a_batch_without_a_step_is_an_error() -> None:
    training, _ = trainer()
    with pytest.raises(RuntimeError, match=r"with trainer\.step"):
        for _ in training.loader(DATA, 5, 1):
            pass


@pytest.mark.usefixtures("alone")
def test_the_scripts_own_errors_are_the_scripts() -> None:
    training, _ = trainer()
    with pytest.raises(KeyError):
        for _ in training.loader(DATA, 5, 1):
            with training.step():
                raise KeyError


def test_an_optimizer_by_name_is_refused_by_saying_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"write Trainer\(model, \[optimizer, second\]\)"):
        trainer(second=torch.optim.SGD(nn.Linear(1, 1).parameters()))


def test_what_is_no_optimizer_is_refused() -> None:
    none: Any = []
    with pytest.raises(TypeError, match=r"one of torch\.optim's, or a list of them, not nothing"):
        Trainer(nn.Linear(1, 1), none)


def two_optimizers() -> tuple[nn.Sequential, list[torch.optim.Optimizer]]:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(1, 4), nn.Linear(4, 1))
    return model, [
        torch.optim.SGD(model[0].parameters(), lr=0.001),
        torch.optim.Adam(model[1].parameters(), lr=0.001),
    ]


@pytest.mark.usefixtures("alone")
def test_several_optimizers_come_to_the_weights_of_a_plain_loop() -> None:
    model, optimizers = two_optimizers()
    training = Trainer(model, optimizers)
    for batch in training.loader(DATA, 5, 3, shuffle=False):
        with training.step() as step:
            loss(training, batch).backward()  # type: ignore[no-untyped-call]
            for one in optimizers:
                one.step()
                one.zero_grad()
        assert step.committed
    plain, optimizers = two_optimizers()
    for begin in (0, 5) * 3:
        x, y = DATA[begin : begin + 5]
        nn.functional.mse_loss(plain(x), y).backward()
        for one in optimizers:
            one.step()
            one.zero_grad()
    for own, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=0)


def train_two(
    body: Callable[[Trainer, list[Tensor], list[torch.optim.Optimizer]], None],
    scaler: torch.amp.GradScaler | None = None,
) -> Trainer:
    model, optimizers = two_optimizers()
    with as_new_process():
        training = Trainer(model, optimizers, **{} if scaler is None else {"scaler": scaler})
        for batch in training.loader(DATA, 5, 1):
            with training.step():
                error = loss(training, batch)
                (error if scaler is None else scaler.scale(error)).backward()  # type: ignore[no-untyped-call]
                body(training, batch, optimizers)
    return training


def test_an_optimizer_that_does_not_step_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="each of a trainer's optimizers steps once"):
        train_two(lambda _, __, optimizers: optimizers[0].step())


def test_of_two_optimizers_a_gradient_scaler_may_pass_over_one_and_the_script_none() -> None:
    scaler = torch.amp.GradScaler("cpu")

    def infinite(_: Trainer, __: list[Tensor], optimizers: list[torch.optim.Optimizer]) -> None:
        optimizers[1].param_groups[0]["params"][0].grad.fill_(float("inf"))
        for one in optimizers:
            scaler.step(one)
        scaler.update()

    def forgotten(_: Trainer, __: list[Tensor], optimizers: list[torch.optim.Optimizer]) -> None:
        scaler.step(optimizers[0])
        scaler.update()

    assert train_two(infinite, scaler).cursor.samples == 10
    with pytest.raises(RuntimeError, match="each of a trainer's optimizers steps once"):
        train_two(forgotten, scaler)


def test_gradients_after_the_first_update_are_an_error_that_says_where_they_belong() -> None:
    def in_turns(
        training: Trainer, batch: list[Tensor], optimizers: list[torch.optim.Optimizer]
    ) -> None:
        optimizers[0].step()
        loss(training, batch).backward()  # type: ignore[no-untyped-call]
        optimizers[1].step()

    def without_ddp(
        training: Trainer, batch: list[Tensor], optimizers: list[torch.optim.Optimizer]
    ) -> None:
        optimizers[0].step()
        training.ddp.module(batch[0]).sum().backward()
        optimizers[1].step()

    def once_ready(
        training: Trainer, batch: list[Tensor], optimizers: list[torch.optim.Optimizer]
    ) -> None:
        assert training._step is not None
        training._step.make_ready()
        training.ddp.module(batch[0]).sum().backward()
        optimizers[0].step()

    for body in (in_turns, without_ddp, once_ready):
        with pytest.raises(RuntimeError, match=r"write all backward\(\) before it"):
            train_two(body)


@pytest.mark.usefixtures("alone")
def test_a_closure_is_computed_once_and_then_committed() -> None:
    training, optimizer = trainer()
    computed = []
    for batch in training.loader(DATA, 5, 1):

        def closure(batch: list[Tensor] = batch) -> Tensor:
            computed.append(training.cursor.step)
            found = loss(training, batch)
            found.backward()  # type: ignore[no-untyped-call]
            return found

        with training.step() as step:
            assert isinstance(optimizer.step(closure), Tensor)
        assert step.committed
    assert computed == [0, 1]


@pytest.mark.usefixtures("alone")
def test_an_optimizer_that_computes_its_closure_several_times_is_refused() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.LBFGS(model.parameters())
    training = Trainer(model, optimizer)
    with pytest.raises(TypeError, match="LBFGS"):
        for _ in training.loader(DATA, 5, 1):
            with training.step():
                optimizer.step(lambda: 0.0)


@pytest.mark.usefixtures("alone")
def test_a_second_loader_is_refused_by_saying_what_to_write() -> None:
    training, _ = trainer()
    training.loader(DATA, 5, 1)
    with pytest.raises(RuntimeError, match="ConcatDataset"):
        training.loader(DATA, 5, 1)


@pytest.mark.usefixtures("alone")
def test_a_scaler_that_is_handed_over_and_not_used_is_an_error() -> None:
    training, optimizer = trainer(scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(RuntimeError, match=r"write scaler\.scale\(loss\)"):
        for batch in training.loader(DATA, 5, 1):
            with training.step():
                loss(training, batch).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    assert training.cursor.samples == 0


@pytest.mark.usefixtures("alone")
def test_parameters_that_the_loss_does_not_reach_are_an_error_that_says_what_to_do() -> None:
    model = nn.ModuleDict({"used": nn.Linear(1, 1), "unused": nn.Linear(1, 1)})

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.parts["used"](x)
            return found

    half = Half()
    optimizer = torch.optim.SGD(half.parameters(), lr=0.001)
    training = Trainer(half, optimizer)
    with pytest.raises(RuntimeError, match="requires_grad_"):
        for x, _ in training.loader(DATA, 5, 1):
            with training.step():
                training.ddp(x).sum().backward()
                optimizer.step()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "environment",
    WORLDS,
)
@pytest.mark.parametrize("gpu", [None, torch.device("cuda", 0)])
def test_a_left_over_init_process_group_is_an_error_that_says_to_remove_it(
    environment: dict[str, str], gpu: torch.device | None
) -> None:
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    with pytest.raises(RuntimeError, match=r"remove dist\.init_process_group"):
        find_peers(environment, gpu, nccl_in_process=False, saves=True)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("environment", WORLDS)
@pytest.mark.parametrize("over", [False, True], ids=["", "over"])
def test_a_second_trainer_is_an_error_that_says_why(
    environment: dict[str, str], over: bool
) -> None:
    trainer()
    if over:
        dist.destroy_process_group()
    with pytest.raises(RuntimeError, match=r"one elastic\.Trainer: .* a script and a job for each"):
        find_peers(environment, None, nccl_in_process=False, saves=True)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", ["sampler", "batch_sampler", "drop_last"])
def test_a_left_over_sampler_is_an_error_that_says_to_leave_it_out(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: leave it out"):
        trainer()[0].loader(DATA, 5, 1, **{name: object()})


def test_parameters_used_by_some_ranks_only_are_refused() -> None:
    with pytest.raises(ValueError, match="same parameters"):
        trainer(ddp={"find_unused_parameters": True})
