"""The messages between a member of a group and the keeper: one typed JSON object per line.

Nothing here does I/O. Every field that comes in is checked, as anybody can send anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any

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
CAUSES = ("new", "change", "failed")
_DOINGS = ("waits", "leads", "steps", "over")
_TURNS = ("wait", "lead", "join", "over", "each", "trains")

_ADDRESS = re.compile(r"[A-Za-z0-9._:%\[\]-]{0,255}\Z")
_HEX = re.compile(r"[0-9a-f]{0,64}\Z")
_MEASURE_NAME = re.compile(r"[a-z_]{1,20}\Z")
_MAX_WHOLE = 10**15
_MAX_LOCAL = 1_024
_WHAT = re.compile(rf"[A-Za-z0-9+/=]{{0,{MAX_WHAT}}}\Z")
_MAX_WORLD = 16_384


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
    """

    array: int
    task: int
    node: str
    role: Role
    local_rank: int = 0
    local_world: int = 1
    address: str = ""
    program: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """The generation that a member is still in when it connects to the keeper again."""

    generation: int
    rank: int
    world: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Peer:
    """One member of a generation."""

    task: int
    node: str
    local_rank: int


@dataclass(frozen=True, slots=True)
class Generation:
    """One fixed membership of a group; ``members`` are in rank order.

    ``store`` (HOST:PORT) is None for rank 0, which opens it, and where ``alone``.
    """

    number: int
    rank: int
    world: int
    alone: bool
    store: str | None
    members: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """The generation will end: at a step boundary if ``planned``, else at once.

    Workers stop after the same step: rank 0 tells its peers, not the keeper, in that step.

    ``why`` is ``join``, ``leave``, ``loss``, or ``failure`` (a member's workers have failed).
    """

    number: int
    planned: bool
    why: str


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

    step: int = -1
    cause: str = "new"  # one of CAUSES
    error: str = ""
    lineage: int = 0
    launcher: str = ""  # one of LAUNCHERS


@dataclass(frozen=True, slots=True)
class StoreAt:
    """Rank 0's store of the generation listens here."""

    endpoint: str
    generation: int


@dataclass(frozen=True, slots=True)
class Broken:
    """A collective of this generation failed."""

    generation: int


@dataclass(frozen=True, slots=True)
class Working:
    """I am not at a boundary yet, and I work: do not take me for one that hangs."""


@dataclass(frozen=True, slots=True)
class Leave:
    """SIGTERM has come: go on without me."""


@dataclass(frozen=True, slots=True)
class Measured:
    """How far the training has come."""

    measures: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Finishing:
    """My processes have ended well, and I wait for those of the other nodes."""


@dataclass(frozen=True, slots=True)
class Done:
    """I have ended well: the end of my connection is no loss."""


Step = tuple[int, int, str]  # one that is done: its number, its exit code, its mark


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch task does: ``waits``, ``leads`` (runs the script), ``steps`` (joins), ``over``.

    ``step`` is the number of the srun that runs now (-1: none); if it ``trains``, ``what`` has what
    the others need to start it. ``over``: the script has ended with ``code``.
    """

    doing: str
    step: int = -1
    trains: bool = False
    what: str = ""
    done: tuple[Step, ...] = ()
    code: int = 0


@dataclass(frozen=True, slots=True)
class Ping:
    """I am alive."""

    number: int


@dataclass(frozen=True, slots=True)
class Challenge:
    """The keeper's first message: what to prove, and how."""

    nonce: str
    method: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The proof was accepted. This is the first sealed message."""

    run: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The proof was not accepted; ``retry``: a later one may be."""

    why: str
    retry: bool


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

    why: str


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a ping."""

    number: int


@dataclass(frozen=True, slots=True)
class Turn:
    """To a batch task: ``wait``, ``lead`` (run the script), ``join`` a step, ``over``, ``each``.

    ``each``: run the script on this node too, as it trains without srun. ``trains``: the step that
    runs here trains.
    """

    do: str
    step: int = -1
    what: str = ""
    done: tuple[Step, ...] = ()
    code: int = 0


FromMember = (Ready | StoreAt | Broken | Working | Leave | Measured) | (
    Finishing | Done | Ping | Batch
)
_Small = (Challenge | Welcome | Refused | Change | Alone) | (
    Released | Finished | Dropped | Pong | Turn
)
FromKeeper = _Small | Generation


def payload(nonce: str, hello: Hello) -> str:
    """Return the text that a member proves: this challenge and its whole answer."""
    return f"{nonce} {encode(replace(hello, proof='')).decode().rstrip()}"


def good_measures(found: Mapping[Any, Any]) -> tuple[tuple[str, float], ...]:
    """Return the valid measures, 8 at most."""
    good = [(name, float(value)) for name, value in found.items() if _is_measure(name, value)]
    return tuple(good[:MAX_MEASURES])


def encode(message: Hello | FromMember | FromKeeper) -> bytes:
    """Return the line for a message, with its line end."""
    if isinstance(message, Generation):
        return _encode_generation(message)
    return json.dumps(_plain(message), separators=(",", ":")).encode() + b"\n"


def parse_hello(line: bytes) -> Hello:
    """Read a member's answer to the challenge.

    Raises:
        ProtocolError: it is not one.
    """
    match _object(line):
        case {"proof": str(proof), "role": str(role), **rest}:
            identity = Identity(
                array=_whole(rest.get("array")),
                task=_whole(rest.get("task")),
                node=_matching(NAME, rest.get("node")),
                role=_role(role),
                local_rank=_whole(rest.get("local_rank"), _MAX_LOCAL - 1),
                local_world=_whole(rest.get("local_world"), _MAX_LOCAL),
                address=_matching(_ADDRESS, rest.get("address")),
                program=_matching(_HEX, rest.get("program", "")),
            )
            if identity.local_rank >= identity.local_world:
                raise ProtocolError("local_rank must be below local_world")
            nonce = _matching(_HEX, rest.get("nonce", ""))
            return Hello(proof, identity, _held(rest.get("held")), nonce)
    raise ProtocolError("not the answer to a challenge")


def parse_from_member(line: bytes) -> FromMember:
    """Read what an authenticated member says.

    Raises:
        ProtocolError: it is not something that a member may say.
    """
    match _object(line):
        case {"ping": number}:
            return Ping(_whole(number))
        case {"progress": {**measures}}:
            return Measured(_measures(measures))
        case {"ready": {"step": step, "cause": str(cause), "error": str(error), **rest}}:
            if cause not in CAUSES:
                raise ProtocolError("not a cause")
            lineage, launcher = _whole(rest.get("lineage", 0)), rest.get("launcher", "")
            if launcher not in LAUNCHERS:
                raise ProtocolError("not a launcher")
            return Ready(_step(step), cause, error[-MAX_ERROR:], lineage, launcher)
        case {"store": endpoint, "generation": generation}:
            return StoreAt(_endpoint(endpoint), _whole(generation))
        case {"broken": generation}:
            return Broken(_whole(generation))
        case {"working": True}:
            return Working()
        case {"leave": True}:
            return Leave()
        case {"finishing": True}:
            return Finishing()
        case {"done": True}:
            return Done()
        case {"batch": {"doing": str(doing), **rest}} if doing in _DOINGS:
            trains = rest.get("trains") is True
            return Batch(doing, _step(rest.get("step")), trains, *_about_steps(dict(rest)))
    raise ProtocolError("not a message that the keeper knows")


def parse_from_keeper(line: bytes) -> FromKeeper:
    """Read what the keeper says.

    Raises:
        ProtocolError: it is not something that the keeper says.
    """
    found = _object(line)
    for key, read in _FROM_KEEPER.items():
        if key in found:
            try:
                return read(found)
            except (LookupError, TypeError, ValueError) as error:
                raise ProtocolError(f"not a '{key}' of the keeper: {error}") from error
    raise ProtocolError("not a message of the keeper")


def _read_generation(found: dict[str, Any]) -> Generation:
    fields = found["generation"]
    store = fields["store"]
    return Generation(
        number=_whole(fields["number"]),
        rank=_whole(fields["rank"], _MAX_WORLD),
        world=_whole(fields["world"], _MAX_WORLD),
        alone=fields["alone"] is True,
        store=None if store is None else _endpoint(store),
        members=tuple(
            Peer(_whole(task), _matching(NAME, node), _whole(local, _MAX_LOCAL))
            for task, node, local in fields["members"]
        ),
    )


def _read_turn(fields: dict[str, Any]) -> Turn:
    if fields["do"] not in _TURNS:
        raise ProtocolError("not a turn")
    return Turn(fields["do"], _step(fields["step"]), *_about_steps(fields))


def _about_steps(fields: Mapping[Any, Any]) -> tuple[str, tuple[Step, ...], int]:
    done = fields.get("done", [])
    if not isinstance(done, list) or len(done) > MAX_STEPS:
        raise ProtocolError("not the steps that are done")
    steps = tuple(_step_done(one) for one in done)
    return _matching(_WHAT, fields.get("what", "")), steps, _whole(fields.get("code", 0), 255)


def _step_done(value: object) -> Step:
    match value:
        case [number, code, mark]:
            return _whole(number), _whole(code, 255), _matching(_HEX, mark)
    raise ProtocolError("not a step that is done")


_FROM_KEEPER: dict[str, Callable[[dict[str, Any]], FromKeeper]] = {
    "pong": lambda found: Pong(_whole(found["pong"])),
    "change": lambda found: Change(
        _whole(found["change"]), found["planned"] is True, str(found["why"])
    ),
    "generation": _read_generation,
    "alone": lambda found: Alone(),
    "released": lambda found: Released(),
    "finished": lambda found: Finished(),
    "dropped": lambda found: Dropped(str(found["dropped"])),
    "turn": lambda found: _read_turn(found["turn"]),
    "challenge": lambda found: Challenge(str(found["challenge"]), str(found["method"])),
    "welcome": lambda found: Welcome(str(found["welcome"]["run"])),
    "refused": lambda found: Refused(str(found["refused"]), found["retry"] is True),
}


def _plain(message: Hello | FromMember | _Small) -> dict[str, Any]:
    match message:
        case Hello(proof, identity, held, nonce):
            who = asdict(identity) | {"role": identity.role.value}
            back = None if held is None else asdict(held)
            return {"proof": proof, **who, "held": back, "nonce": nonce}
        case Ready(step, cause, error, lineage, launcher):
            said = {"step": step, "cause": cause, "error": error[-MAX_ERROR:]}
            more = {"lineage": lineage, "launcher": launcher}
            return {"ready": said | {name: value for name, value in more.items() if value}}
        case StoreAt(endpoint, generation):
            return {"store": endpoint, "generation": generation}
        case Measured(measures):
            return {"progress": dict(measures)}
        case Working() | Leave() | Finishing() | Done() | Alone() | Released() | Finished():
            return {type(message).__name__.lower(): True}
        case Change(number, planned, why):
            return {"change": number, "planned": planned, "why": why}
        case Challenge(nonce, method):
            return {"challenge": nonce, "method": method}
        case Welcome(run):
            return {"welcome": {"run": run}}
        case Refused(why, retry):
            return {"refused": why, "retry": retry}
        case Ping(value) | Pong(value) | Broken(value):
            return {type(message).__name__.lower(): value}
        case Dropped(why):
            return {"dropped": why}
        case Batch() | Turn():
            return {type(message).__name__.lower(): asdict(message)}


_OF_EACH_RANK = ("number", "rank", "world", "alone", "store")  # all but the members


def _encode_generation(generation: Generation) -> bytes:
    head = {name: getattr(generation, name) for name in _OF_EACH_RANK}
    text = json.dumps(head, separators=(",", ":"))[:-1]
    members = _encode_members(generation.members)
    return f'{{"generation":{text},"members":{members}}}}}\n'.encode()


@lru_cache(maxsize=4)  # all members of a generation are sent the same list
def _encode_members(members: tuple[Peer, ...]) -> str:
    rows = [(peer.task, peer.node, peer.local_rank) for peer in members]
    return json.dumps(rows, separators=(",", ":"))


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("not JSON") from error
    if not isinstance(found, dict):
        raise ProtocolError("not a JSON object")
    return found


def _whole(value: object, most: int = _MAX_WHOLE, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= most:  # True is an int to isinstance
        raise ProtocolError(f"not a whole number from {least} to {most}")
    return value


def _step(value: object) -> int:
    return _whole(value, least=-1)


def _matching(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or not pattern.match(value):
        raise ProtocolError("not a name or an address")
    return value


def _endpoint(value: object) -> str:
    endpoint = _matching(_ADDRESS, value)
    if not parse_address(endpoint)[1]:
        raise ProtocolError("nobody listens at port 0")
    return endpoint


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError as error:
        raise ProtocolError("not a role") from error


def _held(value: object) -> Held | None:
    match value:
        case None:
            return None
        case {"generation": generation, "rank": rank, "world": world, **rest}:
            held = Held(
                _whole(generation, least=1),
                _whole(rank, _MAX_WORLD),
                _whole(world, _MAX_WORLD),
                rest.get("alone") is True,
            )
            if held.rank < held.world:
                return held
    raise ProtocolError("not what a member can hold")


def _measures(found: dict[Any, object]) -> tuple[tuple[str, float], ...]:
    good = good_measures(found)
    if not good or len(good) < len(found):
        raise ProtocolError(f"progress is 1 to {MAX_MEASURES} names with finite numbers below 1e15")
    return good


def _is_measure(name: object, value: object) -> bool:
    if not isinstance(name, str) or not _MEASURE_NAME.match(name):
        return False
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < MAX_MEASURE  # not so of nan and inf, nor of integers beyond any float
