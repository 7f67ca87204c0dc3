"""The messages between a member of a group and the keeper: one typed JSON object per line.

Nothing here does I/O. Anybody can send anything, so what a field may hold stands beside its type.
The object has the message's kind as its key: with all fields below it, or with the first one; then
the others are beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, TypeVar, cast, get_args, get_type_hints

from bftrainer_slurm.keeper.protocol import (
    LAUNCHERS,
    MAX_MEASURES,
    NAME,
    ProtocolError,
    parse_address,
)

MAX_FROM_MEMBER = 65_536  # bytes of a line, its end included
MAX_FROM_KEEPER = 1_048_576  # a generation names all its members
MAX_ERROR = 2_000  # characters of a failure's last lines
MAX_MEASURE = 1e15
MAX_WHAT = 60_000  # characters of what starts a step
MAX_STEPS = 200  # that are done, of a batch script
_MAX_WHOLE = 10**15
_MAX_LOCAL = 1_024
_MAX_WORLD = 16_384
_MEASURE_NAME = re.compile(r"[a-z_]{1,20}\Z")

Made = TypeVar("Made")


def _whole(most: int = _MAX_WHOLE, least: int = 0) -> Callable[[object], int]:
    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= most:  # True is an int to isinstance
            raise ProtocolError(f"not a whole number from {least} to {most}")
        return value

    return read


def _matching(pattern: str | re.Pattern[str]) -> Callable[[object], str]:
    compiled = re.compile(pattern)

    def read(value: object) -> str:
        if not isinstance(value, str) or not compiled.match(value):
            raise ProtocolError("not a word that may stand there")
        return value

    return read


def _one_of(*words: str) -> Callable[[object], str]:
    return _matching(rf"(?:{'|'.join(map(re.escape, words))})\Z")


def _role(value: object) -> Role:
    return Role(_one_of(*(one.value for one in Role))(value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ProtocolError("not a text")
    return value


def _end_of_text(value: object) -> str:
    return _text(value)[-MAX_ERROR:]


def _endpoint(value: object) -> str:
    endpoint = _matching(_ADDRESS)(value)
    if not parse_address(endpoint)[1]:
        raise ProtocolError("nobody listens at port 0")
    return endpoint


def _endpoint_or_none(value: object) -> str | None:
    return None if value is None else _endpoint(value)


def _measures(value: object) -> tuple[tuple[str, float], ...]:
    good = good_measures(value) if isinstance(value, dict) else ()
    if not good or len(good) < len(cast("dict[Any, Any]", value)):
        raise ProtocolError(f"progress is 1 to {MAX_MEASURES} names with finite numbers below 1e15")
    return good


def _steps_done(value: object) -> tuple[Step, ...]:
    if not isinstance(value, list) or len(value) > MAX_STEPS:
        raise ProtocolError("not the steps that are done")
    code, mark = _whole(255), _matching(_HEX)
    return tuple((_whole()(number), code(ended), mark(of)) for number, ended, of in value)


def _peers(value: Any) -> tuple[Peer, ...]:
    task, node, local = _whole(), _matching(NAME), _whole(_MAX_LOCAL)
    return tuple(Peer(task(one), node(at), local(rank)) for one, at, rank in value)


_ADDRESS = r"[A-Za-z0-9._:%\[\]-]{0,255}\Z"
_HEX = r"[0-9a-f]{0,64}\Z"

Whole = Annotated[int, _whole()]
Last = Annotated[int, _whole(least=-1)]  # the number of a step; -1: there is none
Local = Annotated[int, _whole(_MAX_LOCAL)]
World = Annotated[int, _whole(_MAX_WORLD)]
Code = Annotated[int, _whole(255)]
Flag = Annotated[bool, lambda value: value is True]
Text = Annotated[str, _text]
Name = Annotated[str, _matching(NAME)]
Hex = Annotated[str, _matching(_HEX)]
Address = Annotated[str, _matching(_ADDRESS)]
Endpoint = Annotated[str, _endpoint]
What = Annotated[str, _matching(rf"[A-Za-z0-9+/=]{{0,{MAX_WHAT}}}\Z")]
Step = tuple[int, int, str]  # one that is done: its number, its exit code, its mark
Steps = Annotated[tuple[Step, ...], _steps_done]


class Role(Enum):
    """Which kind of process a connection belongs to."""

    AGENT = "agent"  # a torchrun agent with our rendezvous handler
    WORKER = "worker"  # a training process that re-forms in process
    REPORTER = "reporter"  # only reports progress, and belongs to no group
    BATCH = "batch"  # runs the batch script, or a step of it that runs elsewhere too


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a member is: one process of one element. Its peers reach it at ``address``.

    ``program`` tells apart what a batch script runs one after the other, on all nodes alike.

    Raises:
        ProtocolError: ``local_rank`` is not below ``local_world``.
    """

    array: Whole
    task: Whole
    node: Name
    role: Annotated[Role, _role]
    local_rank: Local = 0
    local_world: Local = 1
    address: Address = ""
    program: Hex = ""

    def __post_init__(self) -> None:
        if self.local_rank >= self.local_world:
            raise ProtocolError("local_rank must be below local_world")


@dataclass(frozen=True, slots=True)
class Held:
    """The generation that a member is still in when it connects to the keeper again.

    Raises:
        ProtocolError: ``rank`` is not below ``world``.
    """

    generation: Annotated[int, _whole(least=1)]
    rank: World
    world: World
    alone: Flag = False

    def __post_init__(self) -> None:
        if self.rank >= self.world:
            raise ProtocolError("rank must be below world")


class Peer(NamedTuple):
    """One member of a generation."""

    task: int
    node: str
    local_rank: int


@dataclass(frozen=True, slots=True)
class Generation:
    """One fixed membership of a group; ``members`` are in rank order.

    ``store`` (HOST:PORT) is None for rank 0, which opens it, and where ``alone``.
    """

    number: Whole
    rank: World
    world: World
    alone: Flag
    store: Annotated[str | None, _endpoint_or_none]
    members: Annotated[tuple[Peer, ...], _peers]


@dataclass(frozen=True, slots=True)
class Change:
    """The generation will end: at a step boundary if ``planned``, else at once.

    Workers stop after the same step: rank 0 tells its peers, not the keeper, in that step.

    ``why`` is ``join``, ``leave``, ``loss``, or ``failure`` (a member's workers have failed).
    """

    number: Whole
    planned: Flag
    why: Text


@dataclass(frozen=True, slots=True)
class Hello:
    """The answer to a challenge. The member makes ``nonce`` (hex), so that each key is new."""

    proof: str
    identity: Identity
    held: Held | None = None
    nonce: str = ""


@dataclass(frozen=True, slots=True)
class Ready:
    """I am at a boundary and wait for a generation; ``step`` -1: I have no state.

    ``lineage`` is the number of the generation whose members agreed on the state. A state with a
    later lineage has more progress than any step of an earlier one.
    """

    step: Last = -1
    cause: Annotated[str, _one_of("new", "change", "failed")] = "new"
    error: Annotated[str, _end_of_text] = ""
    lineage: Whole = 0
    launcher: Annotated[str, _one_of(*LAUNCHERS)] = ""


@dataclass(frozen=True, slots=True)
class StoreAt:
    """Rank 0's store of the generation listens here."""

    endpoint: Endpoint
    generation: Whole


@dataclass(frozen=True, slots=True)
class Broken:
    """A collective of this generation failed."""

    generation: Whole


@dataclass(frozen=True, slots=True)
class Working:
    """I am not at a boundary yet, and I work: do not take me for one that hangs."""


@dataclass(frozen=True, slots=True)
class Leave:
    """SIGTERM has come: go on without me."""


@dataclass(frozen=True, slots=True)
class Measured:
    """How far the training has come."""

    measures: Annotated[tuple[tuple[str, float], ...], _measures]


@dataclass(frozen=True, slots=True)
class Finishing:
    """My processes have ended well, and I wait for those of the other nodes."""


@dataclass(frozen=True, slots=True)
class Done:
    """I have ended well: the end of my connection is no loss."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch task does: ``waits``, ``leads`` (runs the script), ``steps`` (joins), ``over``.

    ``step`` is the number of the srun that runs now (-1: none); if it ``trains``, ``what`` has what
    the others need to start it. ``over``: the script has ended with ``code``.
    """

    doing: Annotated[str, _one_of("waits", "leads", "steps", "over")]
    step: Last = -1
    trains: Flag = False
    what: What = ""
    done: Steps = ()
    code: Code = 0


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

    run: Text


@dataclass(frozen=True, slots=True)
class Refused:
    """The proof was not accepted; ``retry``: a later one may be."""

    why: Text
    retry: Flag


@dataclass(frozen=True, slots=True)
class Alone:
    """To an agent: from now on its workers form the group, and it is in a group of one."""


@dataclass(frozen=True, slots=True)
class Released:
    """The planned leave is done: wait for Slurm to end this process."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The training has finished without you: end well, and do not begin it again."""


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
    runs here trains.
    """

    do: Annotated[str, _one_of("wait", "lead", "join", "over", "each", "trains")]
    step: Last = -1
    what: What = ""
    done: Steps = ()
    code: Code = 0


FromMember = (Ready | StoreAt | Broken | Working | Leave | Measured) | (
    Finishing | Done | Ping | Batch
)
FromKeeper = (Challenge | Welcome | Refused | Change | Alone | Generation) | (
    Released | Finished | Dropped | Pong | Turn
)

_NESTED = (Ready, Batch, Welcome, Generation, Turn)  # all their fields are below the kind
_NAMES = {StoreAt: "store", Measured: "progress"}  # the others have the class's name
_FROM_MEMBER = {_NAMES.get(one, one.__name__.lower()): one for one in get_args(FromMember)}
_FROM_KEEPER = {one.__name__.lower(): one for one in get_args(FromKeeper)}
_KINDS = {made: kind for kind, made in (_FROM_MEMBER | _FROM_KEEPER).items()}


def _readers(made: type[Any]) -> dict[str, Callable[[object], Any]]:
    """Return what reads each field of a message, as its type says."""
    hints = get_type_hints(made, include_extras=True)
    return {one.name: hints[one.name].__metadata__[0] for one in fields(made)}


_READERS = {made: _readers(made) for made in (Identity, Held, *_KINDS)}


def payload(nonce: str, hello: Hello) -> str:
    """Return the text that a member proves: this challenge and its whole answer."""
    return f"{nonce} {encode(replace(hello, proof='')).decode().rstrip()}"


def good_measures(found: Mapping[Any, Any]) -> tuple[tuple[str, float], ...]:
    """Return the valid measures, 8 at most."""
    good = [(name, float(value)) for name, value in found.items() if _is_measure(name, value)]
    return tuple(good[:MAX_MEASURES])


def _is_measure(name: object, value: object) -> bool:
    if not isinstance(name, str) or not _MEASURE_NAME.match(name):
        return False
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < MAX_MEASURE  # not so of nan and inf, nor of integers beyond any float


def encode(message: Hello | FromMember | FromKeeper) -> bytes:
    """Return the line for a message, with its line end."""
    if isinstance(message, Hello):
        who = asdict(message.identity) | {"role": message.identity.role.value}
        back = None if message.held is None else asdict(message.held)
        return _line({"proof": message.proof, **who, "held": back, "nonce": message.nonce})
    kind = _KINDS[type(message)]
    if isinstance(message, Measured):
        return _line({kind: dict(message.measures)})
    values = {name: getattr(message, name) for name in _READERS[type(message)]}
    if isinstance(message, Generation):
        members = _members(values.pop("members"))
        return b'{"generation":%b,"members":%b}}\n' % (_line(values)[:-2], members)
    if isinstance(message, _NESTED) or not values:
        return _line({kind: values or True})
    first, *_ = values
    return _line({kind: values.pop(first), **values})


def _line(found: dict[str, Any]) -> bytes:
    return json.dumps(found, separators=(",", ":")).encode() + b"\n"


@lru_cache(maxsize=4)  # all members of a generation are sent the same list
def _members(members: tuple[Peer, ...]) -> bytes:
    return json.dumps(members, separators=(",", ":")).encode()


def parse_hello(line: bytes) -> Hello:
    """Read a member's answer to the challenge.

    Raises:
        ProtocolError: it is not one.
    """
    found = _object(line)
    proof, held = _text(found.get("proof")), found.get("held")
    identity = _made(Identity, found)
    back = None if held is None else _made(Held, held)
    return Hello(proof, identity, back, _matching(_HEX)(found.get("nonce", "")))


def parse_from_member(line: bytes) -> FromMember:
    """Read what an authenticated member says.

    Raises:
        ProtocolError: it is not something that a member may say.
    """
    return cast(FromMember, _parse(line, _FROM_MEMBER))


def parse_from_keeper(line: bytes) -> FromKeeper:
    """Read what the keeper says.

    Raises:
        ProtocolError: it is not something that the keeper says.
    """
    return cast(FromKeeper, _parse(line, _FROM_KEEPER))


def _parse(line: bytes, kinds: Mapping[str, type[Any]]) -> Any:
    found = _object(line)
    kind = next((one for one in found if one in kinds), None)
    if kind is None:
        raise ProtocolError("not a message of this version")
    made, value = kinds[kind], found[kind]
    if made in _NESTED:
        return _made(made, value)
    first = next(iter(_READERS[made]), None)
    if first is not None:
        found[first] = value
    elif value is not True:
        raise ProtocolError(f"'{kind}' says nothing more")
    return _made(made, found)


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("not JSON") from error
    if not isinstance(found, dict):
        raise ProtocolError("not a JSON object")
    return found


def _made(made: type[Made], found: Any) -> Made:
    """Return a message of these values, each as its field allows it."""
    if not isinstance(found, dict):
        raise ProtocolError(f"not the fields of a message '{made.__name__}'")
    try:
        readers = _READERS[made].items()
        return made(**{name: read(found[name]) for name, read in readers if name in found})
    except (TypeError, ValueError) as error:  # or a field is missing
        raise ProtocolError(f"not a message '{made.__name__}': {error}") from error
