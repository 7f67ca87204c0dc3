"""A state taken apart, sent, and put together again."""

import copy
import io
import pickle
from collections import Counter, OrderedDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bftrainer_slurm.elastic.inprocess.transfer import (
    empty_tensors,
    flatten,
    receive,
    send,
    share_tensors,
    unflatten,
)


class Wire:
    """What rank 0 broadcasts, for one receiver after it."""

    def __init__(self) -> None:
        self.sent: list[Tensor] = []
        self.receiving = False

    def broadcast(self, tensor: Tensor) -> None:
        if self.receiving:
            tensor.copy_(self.sent.pop(0))
        else:
            self.sent.append(tensor.clone())

    def arrive(self) -> None:
        pass


def passed_on(state: Any) -> Any:
    wire = Wire()
    send(state, wire)
    wire.receiving = True
    return receive(wire)


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(600, 600), nn.BatchNorm1d(600), nn.Linear(600, 2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 600)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_a_state_arrives_as_it_was_sent() -> None:
    state = {
        "tensors": [torch.arange(3), torch.tensor(2.5, dtype=torch.bfloat16), torch.empty(0)],
        "flags": (torch.tensor([True, False]), None, "text", 1.5, 7),
        3: OrderedDict(a=torch.ones(2, 3, dtype=torch.complex64)),
        "milestones": Counter([30, 80]),
    }
    got = passed_on(state)
    assert torch.equal(got["tensors"][0], torch.arange(3))
    assert got["tensors"][1].dtype == torch.bfloat16
    assert got["tensors"][2].shape == (0,)
    assert got["flags"][0].tolist() == [True, False]
    assert got["flags"][1:] == (None, "text", 1.5, 7)
    assert torch.equal(got[3]["a"], state[3]["a"])  # type: ignore[index]
    assert got["milestones"] == Counter([30, 80])


def test_an_optimizer_that_has_not_stepped_takes_the_state_of_one_that_has() -> None:
    _, optimizer = trained()
    newcomer = torch.optim.Adam(copy.deepcopy(optimizer.param_groups[0]["params"]))
    newcomer.load_state_dict(passed_on(optimizer.state_dict()))
    for own, sent in zip(newcomer.state.values(), optimizer.state.values(), strict=True):
        assert torch.equal(own["exp_avg"], sent["exp_avg"])
        assert own["step"] == sent["step"]


def test_large_tensors_go_by_themselves_and_small_ones_together() -> None:
    model, _ = trained()
    wire = Wire()
    send(model.state_dict(), wire)
    assert len(wire.sent) == 2 + 1 + 1  # length and description; the large weight; the others


def test_a_tensor_that_is_not_contiguous_arrives_whole() -> None:
    tensor = torch.arange(6).reshape(2, 3).t()
    assert torch.equal(passed_on([tensor])[0], tensor)


def test_buffers_take_the_first_ranks_values_in_place() -> None:
    theirs = [torch.tensor(5), torch.arange(3.0), torch.arange(4.0).reshape(2, 2).t()]
    own = [torch.tensor(0), torch.zeros(3), torch.zeros(2, 2).t()]
    wire = Wire()
    share_tensors(theirs, True, wire)
    wire.receiving = True
    share_tensors(own, False, wire)
    assert all(torch.equal(one, other) for one, other in zip(own, theirs, strict=True))


class Evil:
    def __reduce__(self) -> Any:
        return print, ("run",)


def test_a_description_that_would_run_code_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    evil = io.BytesIO()
    torch.save({"shape": Evil(), "devices": []}, evil)
    description = torch.frombuffer(evil.getbuffer(), dtype=torch.uint8)
    with pytest.raises(pickle.UnpicklingError):
        unflatten(description, [])
    with pytest.raises(pickle.UnpicklingError):
        empty_tensors(description)
    assert capfd.readouterr().out == ""


def test_flatten_copies_no_tensor() -> None:
    tensor = torch.zeros(3)
    _, tensors = flatten({"a": tensor})
    tensor += 1
    assert tensors[0].tolist() == [1, 1, 1]
