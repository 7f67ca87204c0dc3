"""A training's state in its nodes' memory: at a change of nodes nothing is read from a disk.

One rank of each node copies it into two memfds in turn, which the node's agent holds: they outlive
its workers, and end with it. At a start the newest of all nodes' states counts, and newcomers
receive it. An image of it is 64 bytes of numbers, all but its tensors' bytes, and these.
"""

from __future__ import annotations

import atexit
import copy
import io
import itertools
import mmap
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bftrainer_slurm.elastic import beginning, saving, steps
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.memory_left import memory_left

VARIABLE, _NAME = "BFTRAINER_SNAPSHOT", "bftrainer-snapshot"  # the agent's memory
_SHARE, _CHUNK, _HEAD = 0.01, 2**25, 64  # of the time, for saving; bytes: sent at once, of numbers
_SHARDED = "elastic.Snapshot keeps whole, plain tensors; torch.distributed.checkpoint keeps sharded"
_ANOTHER, _numbers = "names, shapes or types are another model's", itertools.count()


def made() -> str:
    """Return where workers open this agent's memory for states; it has no size yet."""
    return ":".join(f"/proc/{os.getpid()}/fd/{os.memfd_create(_NAME)}" for _ in range(2))


class Snapshot:
    """Keeps the state of ``parts``, by their names; it is the same on all ranks.

    Each has ``state_dict`` and ``load_state_dict``. All nodes copy it into memory after the same
    step, about every ``every_s``; 0: so often that this takes 1 % of the time. Rank 0 writes a copy
    to ``path`` after each ``disk_every_s``, in a thread; outside a trainer that is all.
    """

    def __init__(
        self, path: str | Path = "", every_s: float = 0, disk_every_s: float = 60, **parts: Any
    ) -> None:
        self._path, self._parts = Path(path) if path else None, parts
        self._every_s, self._disk_every_s = every_s, disk_every_s
        self._disk_due_s, self._begin_s = time.monotonic() + disk_every_s, 0.0
        self._count, self._saved, self._spent_s, self._place = 0, 0, 0.0, None
        self._steps, self._next = 0, 0.0  # from one copy to the next one, and the count then
        self._saved_s, self._wait_s, self._writer = time.monotonic(), inf, threading.Thread()
        self._local, self._number = int(os.environ.get("LOCAL_RANK", "0")), next(_numbers)
        self._say = str if self._local else say
        paths = [] if self._number else map(Path, os.environ.get(VARIABLE, "").split(":"))
        self._slots = [one for one in paths if _NAME in str(one.resolve())]
        if "BFTRAINER_ELEMENT" in os.environ and not self._slots:
            self._do_without("BFTrainer's torchrun is gone, or another Snapshot has it")
        saving.before_end(lambda: self._save(due=self._saved < self._count))
        atexit.register(self._wait)

    def save(self, place: Any = None, now: bool = False) -> None:
        """Keep the state, and ``place``, if it is time to; all ranks call it after each step.

        ``saved()`` keeps what is not kept by then. With ``now`` all is on disk when this returns,
        as at a training's end. Raises TypeError: it is sharded, or no plain value.
        """
        self._count, self._place = self._count + 1, place
        copies, self._begin_s = self._count >= self._next, time.monotonic()
        if copies and self._wait_s == inf and len(set(_gathered(_sample(self._parts)))) > 1:
            self._do_without("weights or optimizers differ between ranks; rank 0's are kept")
        since_s = self._begin_s - self._saved_s
        step_s, late = since_s / (self._count - self._saved), since_s > 2 * self._wait_s
        image = self._save(now, now, copies or late)
        if copies:  # all nodes agree on the next step, as a copy on one holds up all
            took_s = time.monotonic() - self._begin_s  # the disk's copy, and what came before, too
            wait_s = self._every_s or (self._spent_s + took_s) / _SHARE
            steps, self._spent_s = int(wait_s / step_s) + 1 if self._slots else 0, -took_s
            self._steps, self._wait_s = max(_gathered((steps, wait_s)))
            self._next = self._count + (self._steps or inf)
            if image is not None:  # so that a restart does not change it
                image[48:56].view(torch.int64)[0] = self._steps
        self._spent_s += time.monotonic() - self._begin_s

    def load(self) -> Any:
        """Load the newest state that any rank has, else the disk's; return its place, or None.

        All ranks call it. Raises RuntimeError: there are several and no group, or unlike models;
        TypeError: the state is sharded.
        """
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
            raise RuntimeError("call torch.distributed.init_process_group() before Snapshot.load()")
        if (state := self._newest(self._fingerprint())) is None:
            return None
        for name, part in self._parts.items():
            part.load_state_dict(_mapped(state["parts"][name], torch.clone))
        self._count = self._saved = state["count"]
        self._saved_s, self._next = time.monotonic(), self._count + self._steps
        beginning.goes_on()
        return _mapped(state["place"], torch.clone)

    def _do_without(self, why: str) -> None:
        self._slots = []
        self._say(f"elastic.Snapshot keeps nothing in memory, only {self._path}: {why}")

    def _save(self, due: bool, wait: bool = False, copies: bool = False) -> Tensor | None:
        memory = self._slots and self._local == 0 and (due or copies)
        late = time.monotonic() >= self._disk_due_s and (memory or not self._slots)
        disk = self._path if _rank() == 0 and (due or late) else None
        if not memory and not disk:
            return None
        state: dict[str, Any] = {"count": self._count, "fingerprint": self._fingerprint()}
        state |= {"saved_s": int(time.time()), "steps": self._steps, "place": self._place}
        state["parts"] = {name: part.state_dict() for name, part in self._parts.items()}
        if (image := _packed(state, self._room) if memory else None) is not None:
            self._saved, self._saved_s = self._count, time.monotonic()
            steps.of_this_process().wrote_file()
        wait = wait or (due and not self._slots)  # nothing else has it
        if disk and (wait or not self._writer.is_alive()):
            self._wait()
            _texts_of(state)  # raises what must be raised in this thread
            copied = _mapped(state, lambda one: one.detach().to("cpu", copy=True))
            self._writer = threading.Thread(target=_to_disk, args=(disk, copied), daemon=True)
            self._writer.start()
            self._disk_due_s = time.monotonic() + self._disk_every_s
            self._writer.join(None if wait else 0)
        return image

    def _wait(self) -> None:
        if self._writer.is_alive() and not saving.is_ending():  # then others wait for our end
            self._writer.join()

    def _newest(self, fingerprint: int) -> Any:
        """Return the newest state of all ranks, else the disk's; all nodes keep what they get."""
        mine, state = self._own(fingerprint)
        newest = max(rows := _gathered([*_row(mine, fingerprint), time.time()]))
        if len({row[1] for row in rows}) > 1:
            raise RuntimeError("elastic.Snapshot: names, shapes or types differ between ranks")
        # A node that was cut off may have it, while others have written a newer one to the disk.
        if rows[0][-1] - newest[2] > self._disk_every_s:  # by rank 0's clock
            there = _from_disk(self._path, fingerprint) if self._path and _rank() == 0 else None
            if there is not None and there["count"] > newest[0]:
                mine, state = _packed(there | {"steps": 0}, torch.ByteTensor), there
            newest = max(rows := _gathered(_row(mine, fingerprint)))
        if newest[0] < 0:
            return None
        self._steps = newest[6]
        sender, *others = [rank for rank, row in enumerate(rows) if row[0] == newest[0]]
        if _rank() not in (sender, *others):
            mine, state = self._room(newest[3]) if self._slots and not self._local else None, None
        mine = torch.ByteTensor(newest[3]) if mine is None else mine
        if 1 + len(others) < len(rows):
            group = dist.new_group([rank for rank in range(len(rows)) if rank not in others])
            backends = dist.get_backend_config()  # as cpu:gloo,cuda:nccl
            found = _tensors_of([part.state_dict() for part in self._parts.values()])
            device = next((one.device for one in found if f"{one.device.type}:" in backends), "cpu")
            for chunk in torch.split(mine, _CHUNK) if _rank() not in others else ():
                dist.broadcast(sent := chunk.to(device), sender, group)
                chunk.copy_(sent)
        return state or _unpacked(mine, fingerprint)

    def _own(self, fingerprint: int) -> tuple[Tensor | None, Any]:
        """Return this node's newest whole image and its state; its slot is the last one then."""
        found = [(one, _opened(one, size)) for one in self._slots if (size := one.stat().st_size)]
        for path, image in sorted(found, key=lambda one: _row(one[1], 0), reverse=True):
            try:
                self._slots.sort(key=path.__eq__)
                return image, _unpacked(image, fingerprint)
            except Exception as error:  # torch.load's too
                self._say(f"elastic.Snapshot: a state in memory is not used: {error}")
        return None, None

    def _room(self, size: int) -> Tensor | None:
        """Return room in this node's older slot; None: there is none, and why has been said."""
        try:
            missing = sum(max(0, size - 512 * path.stat().st_blocks) for path in self._slots)
            if missing and missing + size > (left := memory_left()):  # to load takes it once more
                raise MemoryError(f"it takes {3 * size / 1e9:.1f} GB, {left / 1e9:.1f} GB are left")
            image = _opened(self._slots[0], size)
        except (MemoryError, OSError) as error:
            self._do_without(str(error))
            return None
        self._slots.reverse()
        self._begin_s = time.monotonic() if missing else self._begin_s  # it is allotted only once
        return image

    def _fingerprint(self) -> int:
        """Return a number of what is alike before and after the first step. Raises TypeError."""
        told: list[object] = [self._number]
        fsdp: Any = getattr(dist, "fsdp", None)  # if it is imported
        for name, part in sorted(self._parts.items()):
            inner = part.modules() if isinstance(part, nn.Module) and fsdp else ()
            if any(isinstance(one, fsdp.FullyShardedDataParallel) for one in inner):
                raise TypeError(_SHARDED)  # FSDP1's state_dict() is a collective
            state = part.state_dict() if isinstance(part, nn.Module) else {}
            groups = [group["params"] for group in getattr(part, "param_groups", ())]
            found = [*itertools.chain(*groups), *_tensors_of(state)]
            told += [name, type(part).__name__, *state, [(one.shape, one.dtype) for one in found]]
        return int.from_bytes(sha256(repr(told).encode()).digest()[:7], "big")


def _sample(parts: dict[str, Any]) -> str:
    """Return some of each weight and optimizer state; buffers may differ in DDP."""
    told: list[Any] = [[*one.parameters()] for one in parts.values() if isinstance(one, nn.Module)]
    told += [one.state_dict() for one in parts.values() if hasattr(one, "param_groups")]
    found = repr([one.detach().reshape(-1)[:64].tolist() for one in _tensors_of(told)])
    return sha256(found.encode()).hexdigest()


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))


def _gathered(own: Any) -> list[Any]:
    if dist.is_initialized():
        dist.all_gather_object(found := [own] * dist.get_world_size(), own)
    return found if dist.is_initialized() else [own]


def _row(image: Tensor | None, fingerprint: int) -> list[int]:
    """Return an image's count, fingerprint, time (s), sizes, sum, steps to the next copy."""
    return [-1, fingerprint, 0] if image is None else image[:_HEAD].view(torch.int64).tolist()


def _mapped(state: Any, do: Callable[[Tensor], object]) -> Any:
    """Return a state with ``do`` of each of its tensors, in their order, in place of them."""
    if isinstance(state, Tensor):
        return do(state)
    if isinstance(state, dict):
        new = copy.copy(state)  # with what a module's state_dict has beside its items
        new.update((name, _mapped(one, do)) for name, one in state.items())
        return new
    return type(state)(_mapped(one, do) for one in state) if type(state) in (list, tuple) else state


def _tensors_of(state: Any) -> list[Tensor]:
    """Return a state's tensors. Raises TypeError: one is sharded, or else no plain array."""
    found: list[Tensor] = []
    _mapped(state, found.append)
    for one in found:
        if type(one) not in (Tensor, nn.Parameter) or one.layout != torch.strided:
            raise TypeError(f"{_SHARDED} (found: {type(one).__name__})")
    return found


def _texts_of(state: Any) -> bytearray:
    """Return all but its tensors' bytes. Raises TypeError: they could not be read without code."""
    try:
        torch.save(_mapped(state, lambda one: one.detach().to("meta")), file := io.BytesIO())
        torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    except Exception as error:  # pickle's, or torch's
        raise TypeError("elastic.Snapshot keeps tensors and plain Python values only") from error
    return bytearray(file.getvalue())


def _packed(state: Any, room: Callable[[int], Tensor | None]) -> Tensor | None:
    """Write a state's image into the ``room`` for so many bytes, if there is. Raises TypeError."""
    tensors, texts = _tensors_of(state), _texts_of(state)
    begin = _HEAD + _up(len(texts))
    if (image := room(begin + sum(_up(one.nbytes) for one in tensors))) is None:
        return None
    numbers = image[:_HEAD].view(torch.int64).zero_()  # it is not whole from here on
    image[_HEAD : _HEAD + len(texts)] = torch.frombuffer(texts, dtype=torch.uint8)
    for part, one in zip(_parts(image, begin, tensors), tensors, strict=True):
        part.copy_(one.detach())
    told = map(state.get, ("count", "fingerprint", "saved_s"))
    numbers[:5] = torch.tensor([*told, len(image), len(texts)])
    numbers[5], numbers[6] = _sum(image), state["steps"]
    return image


def _unpacked(image: Tensor, fingerprint: int) -> Any:
    """Return the state in an image, whose parts are its tensors. Raises what torch.load does."""
    _, found, _, size, texts, checksum, *_ = _row(image, fingerprint)
    if (size, checksum) != (len(image), _sum(image)):
        raise ValueError("it is not whole")
    if found != fingerprint:
        raise ValueError(_ANOTHER)
    bare = torch.load(io.BytesIO(bytes(image[_HEAD : _HEAD + texts].tolist())), weights_only=True)
    parts = _parts(image, _HEAD + _up(texts), _tensors_of(bare))
    return _mapped(bare, lambda _: next(parts))


def _up(size: int) -> int:
    return -(-size // _HEAD) * _HEAD


def _parts(image: Tensor, begin: int, likes: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield a part of an image for each tensor, with the same shape and order of strides."""
    for like in likes:
        part = image[begin : begin + like.nbytes].view(like.dtype)
        yield part.as_strided(like.shape, torch.empty_like(like, device="meta").stride())
        begin += _up(like.nbytes)


def _sum(image: Tensor) -> int:
    return int(image[_HEAD:].view(torch.int64).sum() + 31 * image[:40].view(torch.int64).sum())


def _opened(path: Path, size: int) -> Tensor:
    with path.open("r+b") as file:
        file.truncate(size)
        page = mmap.mmap(file.fileno(), size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
    return torch.frombuffer(page, dtype=torch.uint8)


def _to_disk(path: Path, state: Any) -> None:
    """Write a checkpoint whole, or not at all, and keep the one before it."""
    beside = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        for other in path.parent.glob(f".{path.name}.*"):  # of writers that were killed
            other.unlink(missing_ok=True)
        with beside.open("wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
        there = _from_disk(path, state["fingerprint"])
        if there is None or there["count"] < state["count"]:  # we may have hung for long
            if path.exists():  # there is one at each moment, so that a script may ask for it
                before = beside.with_name(f"{beside.name}.before")
                try:
                    before.hardlink_to(path)
                except OSError:  # a file system without hard links
                    shutil.copyfile(path, before)
                before.replace(f"{path}.before")
            beside.replace(path)
    except Exception as error:  # torch's, too
        say(f"elastic.Snapshot has not written {path}: {error}")


def _from_disk(path: Path, fingerprint: int) -> Any:
    """Return the newest checkpoint that can be used, or None; say why another one cannot."""
    for one in filter(Path.exists, (path, Path(f"{path}.before"))):
        try:
            state = torch.load(one, map_location="cpu", weights_only=True, mmap=True)
            if state["fingerprint"] == fingerprint:
                return state
            say(f"elastic.Snapshot: {one} is not used: {_ANOTHER}")
        except Exception as error:  # torch.load's
            say(f"elastic.Snapshot: {one} is not used: {error}")
    return None
