"""A Hugging Face Trainer that rescales in process; without nodes it goes on from a checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel

from bftrainer_slurm.elastic.inprocess.huggingface import Trainer, TrainingArguments

PARTS = ("model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json")


class Counting(Dataset[dict[str, Tensor]]):
    """Sequences that count up, each from another number."""

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        tokens = (torch.arange(16) + number) % 64
        return {"input_ids": tokens, "labels": tokens}


def newest(folder: Path) -> str | None:
    """Return the last checkpoint that is whole: a node may be taken as one is written or removed.

    The trainer's state is written last.
    """
    whole = [
        path
        for path in folder.glob("checkpoint-*")
        if all((path / name).exists() for name in PARTS)
        and (path / PARTS[-1]).read_text().rstrip().endswith("}")
    ]
    return str(max(whole, key=lambda path: int(path.name[11:]))) if whole else None


def main() -> None:
    """Train for --steps optimizer steps, whatever nodes come and go."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("output"), help="for checkpoints")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--save-every", type=int, default=1000, help="steps between checkpoints")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    )
    trainer = Trainer(
        model,
        TrainingArguments(
            str(arguments.folder),
            max_steps=arguments.steps,
            per_device_train_batch_size=8,
            save_steps=arguments.save_every,
            save_total_limit=2,
            logging_steps=arguments.save_every,
            report_to="none",
        ),
        train_dataset=Counting(),
    )
    trainer.train(resume_from_checkpoint=newest(arguments.folder))


if __name__ == "__main__":
    main()
