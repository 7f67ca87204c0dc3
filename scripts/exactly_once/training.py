"""One training on a fleet of this host: its changes come, and what it writes down is read."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from scripts.exactly_once.account import Trained, account, in_the_model
from scripts.exactly_once.programs.recording import LOSS, SLOW
from scripts.exactly_once.report import Result
from scripts.exactly_once.ways import BATCH, Change, Way
from scripts.labcluster.fleet import PLANNED, Fleet, StuckError, started_fleet
from scripts.labcluster.lab import Tell

PATIENCE_S = 600.0
_PROGRAMS = Path(__file__).with_name("programs")
_SETTLED_STEPS = 2  # before the next change


@dataclass(frozen=True, slots=True)
class Size:
    """What is trained: samples of some epochs."""

    samples: int
    epochs: int

    @property
    def asked(self) -> int:
        """Samples, each as often as there are epochs."""
        return self.samples * self.epochs

    @property
    def steps(self) -> int:
        """Steps of one node."""
        return self.asked // BATCH


def train(
    way: Way, size: Size, changes: Sequence[Change], course: Sequence[Trained], tell: Tell
) -> tuple[Result, list[Trained]]:
    """Train on one node, and let the changes come; the node that goes is the oldest, rank 0.

    It also returns the steps that are in the model; ``course`` are those of the unchanged run.
    """
    asked_steps = size.steps // 2 if way.steps else 0
    program, *own = way.words.replace("STEPS", str(asked_steps)).split()
    options = [f"--samples={size.samples}", f"--epochs={size.epochs}", f"--batch={BATCH}"]
    with started_fleet(_PROGRAMS / f"{program}.py", *options, *own) as fleet:
        try:
            made = _train(fleet, [(one.at * size.asked, one.kind) for one in changes], tell)
        except StuckError as error:
            return Result(way, [], None, wrong=str(error)), []
        loss = fleet.folder / LOSS
        ended = float(loss.read_text()) if loss.exists() else None
        steps, thrown_away = in_the_model(fleet.log.all())
        found = account(
            *(steps, thrown_away, size.samples, size.epochs, ended),
            *(course, asked_steps, planned(made)),
        )
        kinds = [kind for _, kind in made]
        return Result(way, kinds, found, _said(fleet), asked_steps=asked_steps), steps


def _train(
    fleet: Fleet, changes: Sequence[tuple[float, str]], tell: Tell
) -> list[tuple[float, str]]:
    """Let changes come when so many samples are in the model; return when each came.

    Raises:
        StuckError: it does not go on.
    """
    slow, made = fleet.folder / SLOW, list[tuple[float, str]]()
    fleet.start()
    for due, kind in changes:
        fleet.wait(partial(_is_due, fleet, due), PATIENCE_S)
        if fleet.over():
            break
        tell(f"{kind} at {_progress(fleet):,} samples")
        slow.touch()
        made.append((time.monotonic(), kind))
        fleet.change(kind)
        fleet.wait(lambda: fleet.together(_SETTLED_STEPS) or fleet.over(), PATIENCE_S)
        slow.unlink()
    fleet.wait(fleet.over, PATIENCE_S)
    return made


def planned(changes: Sequence[tuple[float, str]]) -> list[tuple[float, float]]:
    """Return when each planned change came, and when the next change of any kind."""
    pairs = pairwise([*changes, (math.inf, "")])
    return [(time_s, end_s) for (time_s, kind), (end_s, _) in pairs if kind in PLANNED]


def _is_due(fleet: Fleet, samples: float) -> bool:
    return _progress(fleet) >= samples or fleet.over()


def _progress(fleet: Fleet) -> int:
    """Return how many samples are in the model now."""
    steps, _ = in_the_model(fleet.log.all())
    return sum(len(step.numbers) for step in steps)


def _said(fleet: Fleet) -> list[str]:
    """Return our own lines in all nodes' output, each once."""
    texts = [path.read_text(errors="replace") for path in sorted(fleet.folder.glob("*.out"))]
    lines = [line for text in texts for line in text.splitlines() if "bftrainer" in line]
    return list(dict.fromkeys(lines))
