"""The messages that follow a proof: of a trainer's processes, of the controller, of the keeper.

Nothing here does I/O. What a field may hold follows from its type, or stands beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, cast, get_args

from bftrainer_slurm.keeper.protocol import (
    LAUNCHERS,
    EndOfText,
    Measures,
    Name,
    Note,
    ProtocolError,
    fields_of,
    matching,
    one_of,
    parse_address,
    read_line,
    reader,
    whole_number,
    write_line,
)
from bftrainer_slurm.sizes import ANY, Sizes

MAX_WHAT = 60_000  # characters of what starts a step
MAX_STEPS = 200  # that are done, of a batch script
_MAX_WORLD = 16_384
_ADDRESS = r"[A-Za-z0-9._:%\[\]-]{0,255}\Z"


def _endpoint(value: object) -> str:
    endpoint = matching(_ADDRESS)(value)
    if not parse_address(endpoint)[1]:
        raise ProtocolError("nobody listens at port 0")
    return endpoint


def _steps_done(value: object) -> tuple[Step, ...]:
    if isinstance(value, list) and len(value) > MAX_STEPS:
        raise ProtocolError("too many steps that are done")
    return cast(tuple[Step, ...], _read_steps(value))


Last = Annotated[int, whole_number(least=-1)]  # the number of a step; -1: there is none
World = Annotated[int, whole_number(_MAX_WORLD)]
Code = Annotated[int, whole_number(255)]
Hex = Annotated[str, matching(r"[0-9a-f]{0,64}\Z")]
Endpoint = Annotated[str, _endpoint]
What = Annotated[str, matching(rf"[A-Za-z0-9+/=]{{0,{MAX_WHAT}}}\Z")]
Step = tuple[int, Code, Hex]  # one that is done: its number, its exit code, its mark
Steps = Annotated[tuple[Step, ...], _steps_done]
_read_steps = reader(tuple[Step, ...])


class Role(str, Enum):
    """Which kind of process a connection belongs to."""

    AGENT = "agent"  # a torchrun agent with our rendezvous handler
    BATCH = "batch"  # runs the batch script, or a step of it that runs elsewhere too


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a member is: the one process of an element that has this role.

    ``program`` tells apart what a batch script runs one after the other, on all nodes alike.
    ``step``: the batch script's srun that has started it; -1: none; -2: one that has no number.
    """

    array: int
    task: int
    node: Name
    role: Role
    program: Hex = ""
    step: Annotated[int, whole_number(least=-2)] = -1


@dataclass(frozen=True, slots=True)
class Held:
    """The generation that a member is still in when it connects to the keeper again.

    Raises:
        ProtocolError: ``rank`` is not below ``world``.
    """

    generation: Annotated[int, whole_number(least=1)]
    rank: World
    world: World

    def __post_init__(self) -> None:
        if self.rank >= self.world:
            raise ProtocolError("rank must be below world")


class Peer(NamedTuple):
    """One member of a generation."""

    task: int
    node: str


@dataclass(frozen=True, slots=True)
class Generation:
    """One fixed membership of a group; ``members`` are in rank order.

    ``store`` (HOST:PORT) is None for rank 0, which opens it.
    """

    number: int
    rank: World
    world: World
    store: Endpoint | None
    members: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """The generation ends: as was ``planned``, or as something has happened.

    ``why`` is ``join``, ``leave``, ``loss``, or ``failure`` (a member's workers have failed).
    """

    planned: bool
    why: str


@dataclass(frozen=True, slots=True)
class Up:
    """An element's batch script is about to start on this node."""

    task: int
    node: Name


@dataclass(frozen=True, slots=True)
class Join:
    """I am a member, and still in the generation that I ``held`` when I was connected last."""

    identity: Identity
    held: Held | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """My processes stand still, and I wait for a generation; ``error``: how they failed."""

    cause: Annotated[str, one_of("new", "change", "failed")] = "new"
    error: EndOfText = ""
    launcher: Annotated[str, one_of(*LAUNCHERS)] = ""


@dataclass(frozen=True, slots=True)
class StoreAt:
    """Rank 0's store of the generation listens here."""

    endpoint: Endpoint
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """SIGTERM has come: go on without me."""


@dataclass(frozen=True, slots=True)
class Measured:
    """How far the training has come."""

    measures: Measures


@dataclass(frozen=True, slots=True)
class Finishing:
    """My processes have ended well, and I wait for those of the other nodes."""


@dataclass(frozen=True, slots=True)
class Done:
    """I have ended well: the end of my connection is no loss."""


@dataclass(frozen=True, slots=True)
class Left:
    """I have left as planned, and wait for Slurm to end me: said to each keeper until it does."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch task does: ``waits``, ``leads`` (runs the script), ``steps`` (joins), ``over``.

    ``step`` is the number of the srun that trains (-1: none), and ``what`` has what the others need
    to start it. ``over``: the script has ended with ``code``. ``beside``: steps have run at the
    same time, so a number may be another step's when the script runs again.
    """

    doing: Annotated[str, one_of("waits", "leads", "steps", "over")]
    step: Last = -1
    what: What = ""
    done: Steps = ()
    code: Code = 0
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Ping:
    """I am alive."""

    number: int


@dataclass(frozen=True, slots=True)
class Started:
    """To an element that is up: its trainer's run, and whether it is the trainer's first element.

    ``keeper_note.c`` reads this line, too.
    """

    run: Name
    first: bool


@dataclass(frozen=True, slots=True)
class Welcome:
    """You are a member."""


@dataclass(frozen=True, slots=True)
class Released:
    """The planned leave is done: wait for Slurm to end this process."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The training has finished without you: end with ``code``, and do not begin it again."""

    code: Code = 0


@dataclass(frozen=True, slots=True)
class Dropped:
    """You were declared lost: join again."""

    why: str


@dataclass(frozen=True, slots=True)
class Waits:
    """You wait for others, and this is for your log: for whom, and what happens next."""

    why: str


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a ping."""

    number: int


@dataclass(frozen=True, slots=True)
class Turn:
    """To a batch task: ``wait``, ``lead`` (run the script), ``join`` a step, ``over``, ``each``.

    ``each``: run the script on this node too, as it trains without srun. ``trains``: this step of
    the script that runs here (-1: one without a number) trains. ``again``: steps that have failed
    here are to come again. ``stop``: the script has ended well without this step.
    """

    do: Annotated[str, one_of("wait", "lead", "join", "over", "each", "trains", "again", "stop")]
    step: Last = -1
    what: What = ""
    done: Steps = ()
    code: Code = 0


@dataclass(frozen=True, slots=True)
class Engaged:
    """Who took part by what the controller knows: these tasks' agents, and who led the script.

    Slurm still runs all of them. ``leader`` -1: nobody.
    """

    generation: int = 0  # the last one that the controller has heard of
    tasks: frozenset[int] = frozenset()
    leader: Last = -1

    def without(self, tasks: Collection[int]) -> Engaged:
        """Return who is left when Slurm has ended these tasks."""
        leader = -1 if self.leader in tasks else self.leader
        return Engaged(self.generation, self.tasks.difference(tasks), leader)


NOBODY = Engaged()


@dataclass(frozen=True, slots=True)
class Own:
    """Who owns a trainer, how many nodes the plan gives it (0: not known), its group's sizes.

    Who was ``engaged`` before it is for a new keeper.
    """

    array: int
    uid: int
    want: int
    sizes: Sizes = ANY
    engaged: Engaged = NOBODY


@dataclass(frozen=True, slots=True)
class Tell:
    """A trainer's next element ``begins`` it; it has ``finished`` well; its run has ``ended``."""

    array: int
    what: Annotated[str, one_of("begins", "finished", "ended")]


@dataclass(frozen=True, slots=True)
class Part:
    """These tasks shall leave at a step boundary."""

    array: int
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """Slurm has ended this task on this node; it may be on another one by now."""

    array: int
    task: int
    node: Name


@dataclass(frozen=True, slots=True)
class Publish:
    """The status that users are shown: so many bytes, which follow this line."""

    length: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Send the notes after this one of the keeper with this identity, for ever."""

    identity: str
    after: int


@dataclass(frozen=True, slots=True)
class Show:
    """Send the status, or what the history has about ``what`` since then (Unix seconds)."""

    what: str = ""
    since_s: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """To the controller: it is ``done``, or could not be in time."""

    done: bool = True


@dataclass(frozen=True, slots=True)
class Serving:
    """The stream of notes begins; the keeper's identity is another one after each start."""

    identity: str


FromController = Own | Tell | Part | Lost | Publish | Watch | Show
FromMember = Up | Join | Ready | StoreAt | Leave | Measured | Finishing | Done | Left | Ping | Batch
FromKeeper = (Started | Welcome | Change | Generation | Released | Finished | Dropped | Pong) | (
    Turn | Waits | Answer | Serving
)


@dataclass(frozen=True, slots=True)
class Send:
    """What the keeper's pure parts want: a message to the member with this key."""

    key: int
    message: FromKeeper


@dataclass(frozen=True, slots=True)
class HangUp:
    """The member with this key is out: end its connection."""

    key: int


Output = Send | HangUp | Note  # a note is for the controller


def encode(message: FromController | FromMember | FromKeeper) -> bytes:
    """Return the line for a message, with its line end."""
    kind, values = type(message).__name__.lower(), fields_of(message)
    if isinstance(message, Generation):
        without = write_line({kind: values | {"members": ()}})
        return without.removesuffix(b"[]}}\n") + _members(message.members) + b"}}\n"
    return write_line({kind: values})


@lru_cache(maxsize=4)  # all members of a generation are sent the same list
def _members(members: tuple[Peer, ...]) -> bytes:
    return json.dumps(members, separators=(",", ":")).encode()


def _parser(kinds: Any) -> Callable[[bytes], Any]:
    """Return what reads a line with a message of one of these, or raises ProtocolError."""
    known = {one.__name__.lower(): one for one in get_args(kinds)}
    return lambda line: read_line(line, known)


parse_from_controller: Callable[[bytes], FromController] = _parser(FromController)
parse_from_member: Callable[[bytes], FromMember] = _parser(FromMember)
parse_from_keeper: Callable[[bytes], FromKeeper] = _parser(FromKeeper)
