"""The learning rate follows the global batch in a step, and is the script's own between steps."""

import pytest
import torch

from bftrainer_slurm.elastic.inprocess.scaling import Rate, RateRule

WEIGHT = torch.nn.Parameter(torch.zeros(1))
SGD, ADAM = torch.optim.SGD([WEIGHT]), torch.optim.Adam([WEIGHT])


@pytest.mark.parametrize(
    ("rule", "optimizer", "factor"),
    [
        ("linear", ADAM, 4.0),
        ("sqrt", SGD, 2.0),
        ("none", SGD, 1.0),
        (lambda times: times + 3.0, SGD, 7.0),
        (None, SGD, 4.0),
        (None, ADAM, 2.0),
    ],
)
def test_rules(rule: RateRule | None, optimizer: torch.optim.Optimizer, factor: float) -> None:
    assert Rate(rule, ramp=0).factor(4.0, optimizer) == factor


def test_after_a_change_a_ramp_leads_to_the_new_rate() -> None:
    rate = Rate("linear", ramp=4)
    assert [rate.factor(3.0, SGD) for _ in range(5)] == [1.5, 2.0, 2.5, 3.0, 3.0]
    assert [rate.factor(1.0, SGD) for _ in range(2)] == [2.5, 2.0]


def test_a_newcomer_goes_on_in_the_middle_of_a_ramp() -> None:
    rate, newcomer = Rate("linear", ramp=4), Rate("linear", ramp=4)
    rate.factor(3.0, SGD)
    newcomer.load_state_dict(rate.state_dict())
    assert [newcomer.factor(3.0, SGD) for _ in range(3)] == [2.0, 2.5, 3.0]


def test_what_is_no_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="'linear', 'sqrt', 'none' or a function"):
        Rate("square", ramp=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("lr", [0.5, torch.tensor(0.5)])
def test_a_rate_is_scaled_in_a_step_only(lr: float | torch.Tensor) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=lr)
    rate = Rate("linear", ramp=0)
    weight.grad = torch.ones(1)
    rate.apply(3.0, optimizer)
    optimizer.step()
    rate.restore()
    assert weight.item() == -1.5
    assert optimizer.param_groups[0]["lr"] == 0.5
    rate.restore()
    assert optimizer.param_groups[0]["lr"] == 0.5
