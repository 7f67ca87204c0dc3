"""What is compared: ways of training, a program and its options each, and which changes come when.

Changes come in a seeded series, by how much of the training is done. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from random import Random

from scripts.labcluster.fleet import CHANGES

# What programs, or one with an option, need beside torch.
_PACKAGES = {
    "huggingface": "transformers",
    "accelerated": "accelerate",
    "with_lightning": "lightning",
    "--keep=loader": "torchdata",
    "deep": "deepspeed",
}


@dataclass(frozen=True, slots=True)
class Way:
    """One way of training; ``words`` are a program of ``programs``, and its own options."""

    name: str
    title: str
    words: str

    @property
    def is_here(self) -> bool:
        """Whether the package that it needs is installed."""
        needed = (_PACKAGES.get(word, "torch") for word in self.words.split())
        return all(find_spec(package) is not None for package in needed)

    @property
    def steps(self) -> bool:
        """Whether it is asked for steps of the optimizer, not for epochs."""
        return "STEPS" in self.words


UNCHANGED = Way("unchanged", "plain DDP, no change of nodes", "ddp")
_HF = "Hugging Face Trainer"
_WAYS = (
    Way("huggingface", f"{_HF}, no checkpoint given", "huggingface"),
    Way("huggingface-true", f"{_HF}, `resume_from_checkpoint=True`", "huggingface --resume=true"),
    Way("huggingface-newest", f"{_HF}, newest checkpoint given", "huggingface --resume=newest"),
    Way("huggingface-steps", f"{_HF}, `max_steps`", "huggingface --steps=STEPS"),
    Way("accelerate", "accelerate, `load_state` and `skip_first_batches`", "accelerated"),
    Way("accelerate-samples", "accelerate, samples skipped", "accelerated --unit=samples"),
    Way("lightning", "Lightning, no `ckpt_path`", "with_lightning"),
    Way("lightning-last", 'Lightning, `ckpt_path="last"`', "with_lightning --resume=last"),
    Way("ddp", "plain DDP, batches skipped", "ddp"),
    Way("ddp-samples", "plain DDP, samples skipped", "ddp --unit=samples"),
    Way("memory", "plain DDP, state in memory", "ddp --unit=samples --keep=memory"),
    Way("fsdp2", "FSDP2 with DCP, batches skipped", "fsdp2"),
    Way("fsdp2-samples", "FSDP2 with DCP, samples skipped", "fsdp2 --unit=samples"),
    Way("torchdata", "torchdata's StatefulDataLoader", "ddp --keep=loader"),
    Way("deepspeed", "DeepSpeed under torchrun, batches skipped", "deep"),
    Way("deepspeed-zero", "DeepSpeed with ZeRO 1", "deep --stage=1"),
)
WAYS = {one.name: one for one in _WAYS}

MOST_NODES = 3
BATCH = 8  # samples of a rank in a step
GLOBAL_BATCH = MOST_NODES * BATCH  # samples of a step of all ranks, at most


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
