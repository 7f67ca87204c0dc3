"""The messages between a member of a group and the keeper, each on a line of its own.

Nothing here does I/O. What a field may hold stands beside its type.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, cast, get_args

from bftrainer_slurm.keeper.protocol import (
    LAUNCHERS,
    NAME,
    EndOfText,
    Flag,
    Measures,
    Name,
    ProtocolError,
    Text,
    Whole,
    fields_of,
    matching,
    one_of,
    or_none,
    parse_address,
    part,
    read_line,
    whole_number,
    write_line,
)

MAX_FROM_MEMBER = 65_536  # bytes of a line, its end included
MAX_FROM_KEEPER = 1_048_576  # a generation names all its members
MAX_WHAT = 60_000  # characters of what starts a step
MAX_STEPS = 200  # that are done, of a batch script
_MAX_WORLD = 16_384
_ADDRESS = r"[A-Za-z0-9._:%\[\]-]{0,255}\Z"
_HEX = r"[0-9a-f]{0,64}\Z"


def _endpoint(value: object) -> str:
    endpoint = matching(_ADDRESS)(value)
    if not parse_address(endpoint)[1]:
        raise ProtocolError("nobody listens at port 0")
    return endpoint


def _steps_done(value: Any) -> tuple[Step, ...]:
    if not isinstance(value, list) or len(value) > MAX_STEPS:
        raise ProtocolError("not the steps that are done")
    code, mark = whole_number(255), matching(_HEX)
    return tuple((whole_number()(number), code(ended), mark(of)) for number, ended, of in value)


def _peers(value: Any) -> tuple[Peer, ...]:
    task, node = whole_number(), matching(NAME)
    return tuple(Peer(task(one), node(at)) for one, at in value)


Last = Annotated[int, whole_number(least=-1)]  # the number of a step; -1: there is none
World = Annotated[int, whole_number(_MAX_WORLD)]
Code = Annotated[int, whole_number(255)]
Hex = Annotated[str, matching(_HEX)]
Endpoint = Annotated[str, _endpoint]
What = Annotated[str, matching(rf"[A-Za-z0-9+/=]{{0,{MAX_WHAT}}}\Z")]
Step = tuple[int, int, str]  # one that is done: its number, its exit code, its mark
Steps = Annotated[tuple[Step, ...], _steps_done]


class Role(str, Enum):
    """Which kind of process a connection belongs to."""

    AGENT = "agent"  # a torchrun agent with our rendezvous handler
    BATCH = "batch"  # runs the batch script, or a step of it that runs elsewhere too


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a member is: the one process of an element that has this role.

    ``program`` tells apart what a batch script runs one after the other, on all nodes alike.
    """

    array: Whole
    task: Whole
    node: Name
    role: Annotated[Role, Role]
    program: Hex = ""


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

    number: Whole
    rank: World
    world: World
    store: Annotated[str | None, or_none(_endpoint)]
    members: Annotated[tuple[Peer, ...], _peers]


@dataclass(frozen=True, slots=True)
class Change:
    """The generation ends: as was ``planned``, or as something has happened.

    ``why`` is ``join``, ``leave``, ``loss``, or ``failure`` (a member's workers have failed).
    """

    planned: Flag
    why: Text


@dataclass(frozen=True, slots=True)
class Hello:
    """The answer to a challenge. The member makes ``nonce`` (hex), so that each key is new."""

    proof: Text
    identity: Annotated[Identity, part(Identity)]
    held: Annotated[Held | None, or_none(part(Held))] = None
    nonce: Hex = ""


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
    generation: Whole


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

    ``step`` is the number of the srun that runs now (-1: none); if it ``trains``, ``what`` has what
    the others need to start it. ``over``: the script has ended with ``code``. ``beside``: steps
    have run at the same time, so a number may be another step's when the script runs again.
    """

    doing: Annotated[str, one_of("waits", "leads", "steps", "over")]
    step: Last = -1
    trains: Flag = False
    what: What = ""
    done: Steps = ()
    code: Code = 0
    beside: Flag = False


@dataclass(frozen=True, slots=True)
class Ping:
    """I am alive."""

    number: Whole


@dataclass(frozen=True, slots=True)
class Challenge:
    """The keeper's first message: what to prove, and how."""

    nonce: Text
    method: Text


@dataclass(frozen=True, slots=True)
class Welcome:
    """The proof was accepted. This is the first sealed message."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The proof was not accepted; ``retry``: a later one may be."""

    why: Text
    retry: Flag


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

    why: Text


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a ping."""

    number: Whole


@dataclass(frozen=True, slots=True)
class Turn:
    """To a batch task: ``wait``, ``lead`` (run the script), ``join`` a step, ``over``, ``each``.

    ``each``: run the script on this node too, as it trains without srun. ``trains``: the step that
    runs here trains. ``again``: steps that have failed here are to come again. ``stop``: the script
    has ended well without this step.
    """

    do: Annotated[str, one_of("wait", "lead", "join", "over", "each", "trains", "again", "stop")]
    step: Last = -1
    what: What = ""
    done: Steps = ()
    code: Code = 0


FromMember = Ready | StoreAt | Leave | Measured | Finishing | Done | Left | Ping | Batch
FromKeeper = (Challenge | Welcome | Refused | Change | Generation) | (
    Released | Finished | Dropped | Pong | Turn
)


def _kinds(*messages: type[Any]) -> dict[str, type[Any]]:
    return {one.__name__.lower(): one for one in messages}


_HELLO = _kinds(Hello)
_FROM_MEMBER = _kinds(*get_args(FromMember))
_FROM_KEEPER = _kinds(*get_args(FromKeeper))


def payload(nonce: str, hello: Hello) -> str:
    """Return the text that a member proves: this challenge and its whole answer."""
    return f"{nonce} {encode(replace(hello, proof='')).decode().rstrip()}"


def encode(message: Hello | FromMember | FromKeeper) -> bytes:
    """Return the line for a message, with its line end."""
    kind, values = type(message).__name__.lower(), fields_of(message)
    if isinstance(message, Generation):
        without = write_line({kind: values | {"members": ()}})
        return without.removesuffix(b"[]}}\n") + _members(message.members) + b"}}\n"
    return write_line({kind: values})


@lru_cache(maxsize=4)  # all members of a generation are sent the same list
def _members(members: tuple[Peer, ...]) -> bytes:
    return json.dumps(members, separators=(",", ":")).encode()


def parse_hello(line: bytes) -> Hello:
    """Read a member's answer to the challenge. Raises ProtocolError."""
    return cast(Hello, read_line(line, _HELLO))


def parse_from_member(line: bytes) -> FromMember:
    """Read what an authenticated member says. Raises ProtocolError."""
    return cast(FromMember, read_line(line, _FROM_MEMBER))


def parse_from_keeper(line: bytes) -> FromKeeper:
    """Read what the keeper says. Raises ProtocolError."""
    return cast(FromKeeper, read_line(line, _FROM_KEEPER))
