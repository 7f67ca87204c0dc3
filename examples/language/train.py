"""Trains a small language model, character by character, with DDP.

Its place is the number of samples that were trained, so it goes on there on any number of ranks.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from bftrainer_slurm import elastic

CONTEXT = 64  # characters that the model sees
BATCH = 16  # pieces of text a step and rank
TELL_EVERY = 100  # steps
RATE = 3e-3  # at the beginning; it falls to 0


class Pieces:
    """All pieces of a text, and the same one character further."""

    def __init__(self, text: str) -> None:
        self.characters = sorted(set(text))
        numbers = {character: number for number, character in enumerate(self.characters)}
        self._text = torch.tensor([numbers[character] for character in text])

    def __len__(self) -> int:
        return len(self._text) - CONTEXT

    def __getitem__(self, places: Tensor) -> tuple[Tensor, Tensor]:
        pieces = self._text[places[:, None] + torch.arange(CONTEXT + 1)]
        return pieces[:, :-1], pieces[:, 1:]


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
    """Train until --samples are seen, whatever nodes come and go."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True, help="what it learns to write")
    parser.add_argument("--folder", type=Path, required=True, help="for the checkpoint")
    parser.add_argument("--samples", type=int, default=32_000, help="pieces of text, in all")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    pieces = Pieces(arguments.text.read_text())
    torch.manual_seed(0)
    model = Model(len(pieces.characters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    checkpoint = arguments.folder / "checkpoint.pt"
    snapshot = elastic.Snapshot(checkpoint, model=model, optimizer=optimizer)
    seen = snapshot.load() or 0
    parallel = DistributedDataParallel(model)  # sends rank 0's weights to all

    for step, begin in enumerate(range(seen, arguments.samples, BATCH * world), start=1):
        # Drawn alike on all ranks, so that no two of them take the same pieces.
        alike = torch.Generator().manual_seed(begin)
        inputs, targets = pieces[torch.randint(len(pieces), (world, BATCH), generator=alike)[rank]]
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 + math.cos(math.pi * begin / arguments.samples)) / 2
        optimizer.zero_grad()
        loss = cross_entropy(parallel(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        now = begin + BATCH * world
        elastic.step(samples=BATCH * world)
        last = now >= arguments.samples
        snapshot.save(now, now=last)
        if rank == 0 and (last or step % TELL_EVERY == 0):
            print(f"seen={now} world={world} loss={loss.item():.3f}", flush=True)
        if elastic.must_save():
            elastic.saved()
    dist.barrier()  # nobody leaves while another rank still needs it
    if rank == 0:
        print(written(model, pieces.characters), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
