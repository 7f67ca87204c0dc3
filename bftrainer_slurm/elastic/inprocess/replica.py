"""What is the same on all ranks: their objects' states, and how far the training has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch.distributed.checkpoint.stateful import Stateful

from bftrainer_slurm.elastic.inprocess.checkpoint import Checkpoints, Version
from bftrainer_slurm.elastic.inprocess.collective import Communicator
from bftrainer_slurm.elastic.inprocess.sampler import Cursor
from bftrainer_slurm.elastic.inprocess.transfer import receive, send

_NOTHING = Version(-1, -1)  # of a rank that has no state


class Replica:
    """This rank's copy of the state that all ranks have: ``objects`` by name, and the cursor."""

    def __init__(self, objects: Mapping[str, Any], checkpoints: Checkpoints | None) -> None:
        self.cursor = Cursor()
        self._objects = dict(objects)
        self._checkpoints = checkpoints
        self._lineage: int | None = None  # None until all ranks have this copy

    def add(self, name: str, one: Stateful) -> None:
        """Add one more object; only before the first ``agree``."""
        self._objects[name] = one

    @property
    def version(self) -> Version | None:
        """The version of this copy; None until all ranks have it."""
        return None if self._lineage is None else Version(self._lineage, self.cursor.step)

    def agree(self, group: Communicator, generation: int) -> None:
        """Make this copy the same as that of rank 0, which first takes a later checkpoint.

        There is one if all ranks were away, while others trained on who are gone now.

        Raises:
            PeerLostError: it did not arrive; what this rank has is still a whole state.
        """
        group.begin()
        if group.rank == 0:
            self._restore()
        # What they have now counts, not what they had when they met.
        said = group.all_gather(self.version or _NOTHING).tolist()
        behind = [
            rank
            for rank in range(1, group.world)
            if said[rank] != said[0] or said[0] == [*_NOTHING]
        ]
        # A keeper that was started anew gives low numbers again.
        lineage = max(generation, said[0][0] + 1)
        state = None
        if behind:
            channel = group.channel(behind)
            if group.rank == 0:
                send(self.state() | {"lineage": lineage}, channel)
            elif group.rank in behind:
                state = receive(channel)
        group.commit()
        if state is not None:
            self.take(state)
        self._lineage = lineage

    def save_if_due(self) -> None:
        """Write a checkpoint in the background, as rank 0, if it is time for one."""
        if self._checkpoints is not None and self._checkpoints.due():
            self.save()

    def save(self) -> None:
        """Write a checkpoint in the background, as rank 0."""
        if self._checkpoints is not None:
            version = self.version
            assert version is not None
            self._checkpoints.save(version, self.state())

    def save_last(self) -> None:
        """Write a checkpoint, as rank 0, and wait for it."""
        if self._checkpoints is not None:
            self.save()
            self._checkpoints.wait()

    def state(self) -> dict[str, Any]:
        """Return this copy."""
        objects = {name: one.state_dict() for name, one in self._objects.items()}
        return {"objects": objects, "cursor": asdict(self.cursor), "lineage": self._lineage}

    def take(self, state: dict[str, Any]) -> None:
        """Take over a copy that ``state`` returned on this rank or another."""
        for name, one in self._objects.items():
            one.load_state_dict(state["objects"][name])
        self.cursor, self._lineage = Cursor(**state["cursor"]), state["lineage"]

    def forget(self) -> None:
        """Drop this copy: begin again from the newest checkpoint, or from another rank's copy."""
        self.cursor, self._lineage = Cursor(), None

    def _restore(self) -> None:
        """Take the newest checkpoint if it is later than this copy."""
        if self._checkpoints is None:
            return
        if self.version is None:  # with a state, we also have what is being written
            self._checkpoints.wait()
        state = self._checkpoints.newest(self.version)
        if state is not None:
            self.take(state)
