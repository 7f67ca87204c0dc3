"""torchdata's StatefulDataLoader: its place is one of samples.

Seen with torchdata 0.11. Its state counts a rank's batches. Where a DistributedSampler gives all
ranks one order, they are read as batches of the ranks that there are now. Streams, and data sets
with a state of their own, are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from bftrainer_slurm.elastic.around import around
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.resuming import guarded, helping

_RANKS = "_bftrainer_ranks"  # in a state: for how many ranks the sampler was
_BATCHES = ("_num_yielded", "_sampler_iter_yielded", "_snapshot_step")
_SAMPLES = ("samples_yielded", "yielded")
_SINCE = "_steps_since_snapshot"
_FINISHED = "_iterator_finished"
_OWN = ("dataset_state", "fetcher_state")


def change(module: ModuleType) -> None:
    """Change the loader of ``torchdata.stateful_dataloader.stateful_dataloader``.

    Raises:
        AttributeError: this version's loader is another one.
    """
    around(module.StatefulDataLoader, "state_dict", _state)
    around(module.StatefulDataLoader, "load_state_dict", _load)


def _state(method: Callable[..., Any], loader: Any) -> Any:
    # The state of a loader that has not begun may be a pattern to load another one into.
    begun = loader._iterator is not None or loader.next_iter_state is not None
    state, ranks = method(loader), getattr(loader.sampler, "num_replicas", None)
    return {**state, _RANKS: ranks} if begun and ranks else state


def _load(method: Callable[..., Any], loader: Any, state_dict: Any) -> Any:
    without = "torchdata's loader counts batches, not samples"
    return method(loader, guarded(lambda: _placed(loader, state_dict), without, state_dict))


def _placed(loader: Any, state: Any) -> Any:
    """Return the state as these ranks would have written it.

    Raises:
        ValueError: it is of a kind that cannot be read so.
    """
    then, ranks = state.get(_RANKS), getattr(loader.sampler, "num_replicas", None)
    if not then or not ranks:
        return state
    helping.add("torchdata")
    if then == ranks or state.get(_FINISHED):
        return state
    if any(_found(state, name) for name in _OWN):
        raise ValueError("its data set has a state of its own")
    trained = max(map(int, _found(state, *_BATCHES))) + sum(map(int, _found(state, _SINCE)))
    batches = min(trained * then // ranks, len(loader))
    if loader.sampler.rank == 0:
        say(
            f"torchdata's loader goes on after the same samples, on {ranks} ranks, {then} before "
            "(--bftrainer=resume=no: not)"
        )
    samples = min(batches * loader.batch_sampler.batch_size, len(loader.sampler))
    return _moved(state, batches, samples)


def _found(state: Mapping[str, Any], *names: str) -> list[Any]:
    """Return the values of these names anywhere in a state, but for None."""
    values = [state[name] for name in names if state.get(name) is not None]
    below = [_found(one, *names) for one in state.values() if isinstance(one, Mapping)]
    return values + [value for one in below for value in one]


def _moved(state: Mapping[str, Any], batches: int, samples: int) -> dict[str, Any]:
    """Return the state with another place."""
    new: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, Mapping):
            new[name] = _moved(value, batches, samples)
        elif name in _BATCHES or name in _SAMPLES:
            new[name] = batches if name in _BATCHES else samples
        else:
            new[name] = 0 if name == _SINCE else value
    return new
