import pytest

from bftrainer_slurm.constraint import ConstraintError, parse_constraint


@pytest.mark.parametrize(
    ("text", "features", "fits"),
    [
        ("red", "red", True),
        ("red", "big", False),
        ("red&big", "red", False),
        ("red,big", "red big", True),
        ("red|big", "big", True),
        ("red|big&slow", "red", False),  # from left to right
        ("big&slow|red", "red", True),
    ],
)
def test_says_whether_a_node_will_do(text: str, features: str, fits: bool) -> None:
    assert parse_constraint(text).allows(frozenset(features.split())) is fits


@pytest.mark.parametrize(
    "text", ["[red|big]", "red*2", "(red|big)&slow", "{red|big}", "red&", "|red", "red&&big", ""]
)
def test_refuses_what_cannot_be_said_of_one_node(text: str) -> None:
    with pytest.raises(ConstraintError, match="without counts, brackets"):
        parse_constraint(text)
