"""The learning rate follows the global batch in a step, and is the script's own between steps."""

import pytest
import torch

from bftrainer_slurm.elastic.scaling import Rate, ScaledRate


@pytest.mark.parametrize(
    ("rate", "factor"), [(Rate.LINEAR, 4.0), (Rate.SQRT, 2.0), (Rate.NONE, 1.0)]
)
def test_rules(rate: Rate, factor: float) -> None:
    assert rate.factor(4.0) == factor


@pytest.mark.parametrize("lr", [0.5, torch.tensor(0.5)])
def test_a_rate_is_scaled_in_a_step_only(lr: float | torch.Tensor) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=lr)
    scaled = ScaledRate(optimizer)
    weight.grad = torch.ones(1)
    scaled.apply(3.0)
    optimizer.step()
    scaled.restore()
    assert weight.item() == -1.5
    assert optimizer.param_groups[0]["lr"] == 0.5
    scaled.restore()
    assert optimizer.param_groups[0]["lr"] == 0.5
