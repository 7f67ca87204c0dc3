"""Trains a small language model, character by character, that rescales in process.

Nodes come and go between two steps: the processes of the nodes that stay keep model and optimizer
in memory, and newcomers get the state from them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from bftrainer_slurm import elastic

CONTEXT = 64  # characters that the model sees
BATCH = 16  # pieces of text a step and rank


class Pieces(Dataset[tuple[Tensor, Tensor]]):
    """All pieces of a text, and the same one character further."""

    def __init__(self, text: str) -> None:
        self.characters = sorted(set(text))
        numbers = {character: number for number, character in enumerate(self.characters)}
        self._text = torch.tensor([numbers[character] for character in text])

    def __len__(self) -> int:
        return len(self._text) - CONTEXT

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        piece = self._text[index : index + CONTEXT + 1]
        return piece[:-1], piece[1:]


class Model(nn.Module):
    """A transformer that predicts the next character at each place."""

    def __init__(self, characters: int, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.meaning = nn.Embedding(characters, width)
        self.place = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, characters)

    def forward(self, text: Tensor) -> Tensor:
        """Return the scores of all characters at each place."""
        size = text.shape[1]
        hidden = self.meaning(text) + self.place(torch.arange(size))
        mask = nn.Transformer.generate_square_subsequent_mask(size)
        scores: Tensor = self.head(self.body(hidden, mask=mask, is_causal=True))
        return scores


@torch.no_grad()
def written(model: Model, characters: list[str], length: int = 80) -> str:
    """Return what the model writes by itself."""
    model.eval()
    text = torch.zeros(1, 1, dtype=torch.long)
    for _ in range(length):
        scores = model(text[:, -CONTEXT:])[0, -1]
        text = torch.cat([text, torch.multinomial(scores.softmax(0), 1)[None]], dim=1)
    return "".join(characters[number] for number in text[0].tolist())


def main() -> None:
    """Train until --steps are done, whatever nodes come and go."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True, help="what it learns to write")
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoints")
    parser.add_argument("--steps", type=int, default=2000)
    arguments = parser.parse_args()

    pieces = Pieces(arguments.text.read_text())
    torch.manual_seed(0)
    model = Model(len(pieces.characters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.steps)
    trainer = elastic.Trainer(
        model, optimizer, scheduler=scheduler, checkpoint=arguments.folder / "checkpoints"
    )
    loader = trainer.loader(pieces, batch_size=BATCH, epochs=arguments.steps)
    for inputs, targets in loader:
        with trainer.step() as step:
            optimizer.zero_grad()
            loss = cross_entropy(trainer.ddp(inputs).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            scheduler.step()
        trainer.loss = loss.detach()
        done = trainer.cursor.step
        if step.committed and trainer.rank == 0 and done % 100 == 0:
            print(f"step={done} world={trainer.world} loss={loss.item():.3f}", flush=True)
        if done >= arguments.steps and trainer.finish():
            break
    if trainer.rank == 0:
        print(f"loss={loss.item():.3f}\n{written(model, pieces.characters)}", flush=True)


if __name__ == "__main__":
    main()
