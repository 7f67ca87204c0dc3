"""The page's colors: text stands out, and trainers are told apart, also by color-blind people."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from bftrainer_slurm.reader.site import ASSETS

BLOCKS = re.findall(r":root \{(.*?)\}", (ASSETS / "page.css").read_text(), re.S)[:2]
# Machado, Oliveira, Fernandes 2009: what somebody without red, or green, cones sees of linear RGB.
EYES = (
    np.eye(3),
    np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
)
# Ottosson 2020: Oklab, in which equal distances look equal; white is 100 from black.
LMS = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
LAB = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])


def linear(theme: int, name: str) -> NDArray[np.float64]:
    colors = dict(re.findall(r"--([a-z0-9]+): #([0-9a-f]+)", BLOCKS[theme]))
    color = "".join(2 * char for char in colors[name]) if len(colors[name]) == 3 else colors[name]
    parts = np.array([int(color[n : n + 2], 16) / 255 for n in (0, 2, 4)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def apart(theme: int, one: str, other: str) -> float:
    """Return how far two colors are apart for the eyes that tell them apart worst."""
    labs = (
        [LAB @ np.cbrt(LMS @ np.clip(eye @ linear(theme, name), 0, 1)) for name in (one, other)]
        for eye in EYES
    )
    return min(100 * float(np.linalg.norm(first - second)) for first, second in labs)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "quiet", "accent", "trouble", "advice"])
@pytest.mark.parametrize("behind", ["card", "paper"])
def test_text_stands_out_from_what_is_behind_it(theme: int, text: str, behind: str) -> None:
    shares = (linear(theme, name) @ [0.2126, 0.7152, 0.0722] for name in (text, behind))
    darker, lighter = sorted(shares)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_trainers_are_told_apart_by_all_eyes(theme: int) -> None:
    palette = [f"t{slot}" for slot in range(8)]
    assert min(apart(theme, *pair) for pair in combinations(palette, 2)) > 10
    others = ("ordinary", "idle", "out", "unseen", "trainers")
    assert min(apart(theme, one, other) for one in palette for other in others) > 7
