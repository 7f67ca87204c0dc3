"""What is compared: ways of training, a program and its options each, and which changes come when.

Changes come in a seeded series, by how much of the training is done. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from random import Random


@dataclass(frozen=True, slots=True)
class Way:
    """One way of training."""

    name: str
    title: str
    program: str
    options: tuple[str, ...] = ()
    needs: str = "torch"  # a package
    steps: bool = False  # it is asked for steps of the optimizer, not for epochs

    @property
    def is_here(self) -> bool:
        """Whether its package is installed."""
        return find_spec(self.needs) is not None


UNCHANGED = Way("unchanged", "plain DDP, no change of nodes", "ddp")
_HF, _PL = "transformers", "lightning"
_TRAINER = "Hugging Face Trainer"
WAYS = {
    one.name: one
    for one in (
        Way("huggingface", f"{_TRAINER}, no checkpoint given", "huggingface", (), _HF),
        Way(
            *("huggingface-true", f"{_TRAINER}, `resume_from_checkpoint=True`", "huggingface"),
            options=("--resume=true",),
            needs=_HF,
        ),
        Way(
            *("huggingface-newest", f"{_TRAINER}, newest checkpoint given", "huggingface"),
            options=("--resume=newest",),
            needs=_HF,
        ),
        Way(
            *("huggingface-steps", f"{_TRAINER}, `max_steps`", "huggingface"),
            options=("--steps=STEPS",),
            needs=_HF,
            steps=True,
        ),
        Way(
            *("accelerate", "accelerate, `load_state` and `skip_first_batches`", "accelerated"),
            needs="accelerate",
        ),
        Way(
            *("accelerate-samples", "accelerate, samples skipped", "accelerated"),
            options=("--unit=samples",),
            needs="accelerate",
        ),
        Way("lightning", "Lightning, no `ckpt_path`", "with_lightning", (), _PL),
        Way(
            *("lightning-last", 'Lightning, `ckpt_path="last"`', "with_lightning"),
            options=("--resume=last",),
            needs=_PL,
        ),
        Way("ddp", "plain DDP, batches skipped", "ddp"),
        Way("ddp-samples", "plain DDP, samples skipped", "ddp", ("--unit=samples",)),
        Way("fsdp2", "FSDP2 with DCP, batches skipped", "fsdp2"),
        Way("fsdp2-samples", "FSDP2 with DCP, samples skipped", "fsdp2", ("--unit=samples",)),
        Way("torchdata", "torchdata's StatefulDataLoader", "stateful", (), "torchdata"),
        Way("deepspeed", "DeepSpeed under torchrun, batches skipped", "deep", (), "deepspeed"),
        Way("deepspeed-zero", "DeepSpeed with ZeRO 1", "deep", ("--stage=1",), "deepspeed"),
    )
}


CHANGES = ("join", "leave", "reclaim", "kill", "zero")
PLANNED = ("join", "leave")  # the others take a node without a word
MOST_NODES = 3


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the nodes, when this part of the samples has been trained."""

    at: float
    kind: str


def series(seed: int, rounds: int, kinds: Sequence[str] = CHANGES) -> list[Change]:
    """Return changes from one node on: in each round one of each kind, in the seed's order.

    A node joins before any that takes one, so that some node is left; ``zero`` takes them all,
    and gives two back.
    """
    order = Random(seed)
    chosen: list[str] = []
    nodes = 1
    for _ in range(rounds):
        left = [kind for kind in kinds if kind != "join"]
        order.shuffle(left)
        for kind in left:
            while nodes < 2 or (nodes < MOST_NODES and order.random() < 0.5):
                chosen.append("join")
                nodes += 1
            chosen.append(kind)
            nodes = 2 if kind == "zero" else nodes - 1
        if nodes < MOST_NODES:
            chosen.append("join")
            nodes += 1
    count = len(chosen)
    return [Change((at + 0.5) / (count + 0.5), kind) for at, kind in enumerate(chosen)]
