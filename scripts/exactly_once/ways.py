"""The ways of training that are compared: a program and its options each."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec


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
        Way("trainer", "elastic.Trainer, batch of a rank", "trainer"),
        Way("trainer-global", "elastic.Trainer, global batch", "trainer", ("--size=global",)),
        Way(
            *("accelerate-inprocess", "accelerate in process, global batch", "trainer"),
            options=("--size=global", "--through=accelerate"),
            needs="accelerate",
        ),
        Way("fsdp2-inprocess", "FSDP2 in process, global batch", "sharded", ("--size=global",)),
        Way(
            *("huggingface-inprocess", "Hugging Face in process, global batch", "huggingface"),
            options=("--inprocess=yes",),
            needs=_HF,
        ),
        Way(
            *("lightning-inprocess", "Lightning in process, global batch", "with_lightning"),
            options=("--inprocess=yes",),
            needs=_PL,
        ),
    )
}
