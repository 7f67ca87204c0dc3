"""What all ranks have in common: their objects' states, and how far the training has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol

from bftrainer_slurm.elastic.inprocess.checkpoint import Checkpoints, Version
from bftrainer_slurm.elastic.inprocess.collective import Communicator
from bftrainer_slurm.elastic.inprocess.sampler import Cursor
from bftrainer_slurm.elastic.inprocess.state import receive, send
from bftrainer_slurm.keeper.membership import Generation


class Stateful(Protocol):
    """Anything whose state newcomers need: a scheduler, a gradient scaler, an average."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state: tensors, plain values, and dicts, lists and tuples of them."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Take the state."""


class Common:
    """This rank's copy of what all have: ``objects`` by name, and the cursor."""

    def __init__(self, objects: Mapping[str, Any], checkpoints: Checkpoints | None) -> None:
        self.cursor = Cursor()
        self._objects = dict(objects)
        self._checkpoints = checkpoints
        self._lineage: int | None = None  # None until this copy is the others' too

    def add(self, name: str, one: Stateful) -> None:
        """Have one more object's state in common; before the first ``agree``."""
        self._objects[name] = one

    @property
    def version(self) -> Version | None:
        """Which state this copy is; None until it is the others' too."""
        return None if self._lineage is None else Version(self._lineage, self.cursor.step)

    def agree(self, group: Communicator, generation: Generation) -> None:
        """Make this copy the one of rank 0, who has come furthest.

        Raises:
            PeerLostError: it did not arrive; this copy is what it was.
        """
        members, lineage = generation.members, generation.number
        first = members[0]
        # All others get it. While this rank was away, some may have trained on who are gone, but
        # for their checkpoints.
        if group.rank == 0 and all(member.step < 0 for member in members[1:]):
            restored = self._restore()
            # A keeper that has begun anew gives low numbers again.
            lineage = lineage if restored is None else max(lineage, restored.lineage + 1)
        behind = [
            rank
            for rank, member in enumerate(members)
            if rank > 0 and (member.step < 0 or member.step != first.step)
        ]
        group.begin(1.0)
        state = None
        if behind:
            channel = group.channel(behind)
            if group.rank == 0:
                send(self._state(lineage), channel)
            elif group.rank in behind:
                state = receive(channel)
        group.commit()
        if state is not None:
            lineage = self._take(state).lineage
        self._lineage = lineage

    def save_if_due(self) -> None:
        """Write a checkpoint in the background, as rank 0, if it is time for one."""
        if self._checkpoints is not None and self._checkpoints.due():
            self.save()

    def save(self) -> None:
        """Write a checkpoint in the background, as rank 0."""
        if self._checkpoints is not None:
            assert self._lineage is not None
            version = Version(self._lineage, self.cursor.step)
            self._checkpoints.save(version, self._state(version.lineage))

    def save_last(self) -> None:
        """Write a checkpoint, as rank 0, and wait for it."""
        if self._checkpoints is not None:
            self.save()
            self._checkpoints.wait()

    def forget(self) -> None:
        """This copy is none any more: begin again from the newest checkpoint, or another's copy."""
        self.cursor, self._lineage = Cursor(), None

    def _restore(self) -> Version | None:
        """Take the newest checkpoint, if it is one of a later state, and return which it is."""
        if self._checkpoints is None:
            return None
        if self.version is None:  # who has a state has what is being written, too
            self._checkpoints.wait()
        state = self._checkpoints.newest(self.version)
        return None if state is None else self._take(state)

    def _state(self, lineage: int) -> dict[str, Any]:
        objects = {name: one.state_dict() for name, one in self._objects.items()}
        return {"objects": objects, "cursor": asdict(self.cursor), "lineage": lineage}

    def _take(self, state: dict[str, Any]) -> Version:
        for name, one in self._objects.items():
            one.load_state_dict(state["objects"][name])
        self.cursor = Cursor(**state["cursor"])
        return Version(state["lineage"], self.cursor.step)
