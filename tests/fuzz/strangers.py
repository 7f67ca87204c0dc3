"""What strangers write: lines and messages for the keeper, statuses, and texts in job records.

A target takes any bytes. The code under test may raise what it says that it raises, nothing else.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from bftrainer_slurm.cli import explain, show, status
from bftrainer_slurm.cli.common import fail_if_unreadable, safe_lines
from bftrainer_slurm.controller.decide.eligibility import why_never
from bftrainer_slurm.controller.state.trainer_state import TrainerState, advance
from bftrainer_slurm.controller.state.view import views_of
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import CredentialError, introduce
from bftrainer_slurm.keeper.messages import (
    Generation,
    encode,
    parse_from_controller,
    parse_from_keeper,
    parse_from_member,
)
from bftrainer_slurm.keeper.protocol import (
    MAX_ANSWER,
    MAX_MESSAGE,
    NOTE,
    NumberedNote,
    ProtocolError,
    format_hint,
    parse_address,
    parse_hint,
    read_line,
    write_line,
)
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.run import SlurmRunner
from tests.fuzz import promise
from tests.keeper.wire import who_says


def line(data: bytes) -> None:
    """Read a line as the keeper does, and as the controller reads its stream."""
    text = data.decode("ascii", "replace")
    with contextlib.suppress(ProtocolError):
        hint = parse_hint(text.split())
        promise(parse_hint(format_hint(hint).split()) == hint, "a hint is read back as another")
    with contextlib.suppress(ProtocolError):
        _promise_same_note(read_line(data, NOTE))
    with contextlib.suppress(ProtocolError):
        _, port = parse_address(text)
        promise(0 <= port < 65_536, "a port that is none")


def message(data: bytes) -> None:
    """Read a message of a member, of the controller and of the keeper; each is read back."""
    readers = (parse_from_member, parse_from_controller, parse_from_keeper)
    for reader in readers:
        try:
            found = cast(Any, reader(data))
        except ProtocolError as error:
            promise(str(error).isprintable(), f"not one clean line: {error}")
            continue
        encoded = encode(found)
        promise(reader(encoded) == found, f"{found} is read back as another")
        promise(encoded.count(b"\n") == 1, "a message of more than a line")
        if len(data) < MAX_MESSAGE // 8 and not isinstance(found, Generation):
            promise(len(encoded) <= MAX_MESSAGE, "a message that nobody takes")


def answer(data: bytes) -> None:
    """Hear DATA from a keeper that is none: as a challenge, and as what a believed one says."""
    with who_says(data) as ours, contextlib.suppress(OSError, CredentialError):
        introduce(ours, "controller", b"token", b"", 1.0)
        promise(False, "who does not know the secret is believed")
    client = KeeperClient("keeper:1", "token")
    with patch("bftrainer_slurm.keeper.client.introduce"):
        with who_says(data), contextlib.suppress(KeeperError):
            client.status()
        with who_says(data), contextlib.suppress(KeeperError):
            for _ in client.watch("", 0):
                pass
        with who_says(data), contextlib.suppress(KeeperError):
            client.join(1, 2, "n1", b"secret")


def document(data: bytes) -> None:
    """Show a status that is any JSON, or a good one with values put into it that cannot be.

    What is printed is clean, whatever is in it. A first byte other than ``{`` begins pairs of
    bytes: which value, and what instead.
    """
    if not data.startswith(b"{"):
        found: Any = copy.deepcopy(_DOCUMENT)
        for which, what in zip(data[::2], data[1::2], strict=False):
            _replace(found, which, _ODD[what % len(_ODD)])
    else:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            return
    if isinstance(found, dict):
        _show(found | {"down": None})


def queue(data: bytes) -> None:
    """Read a queue whose names, comments and array expressions are DATA's parts."""
    texts = [part.decode("utf-8", "replace") for part in data.split(b"\0")]
    gateway = CommandGateway(cast(SlurmRunner, _Squeue(texts)), share=True)
    found = gateway.queue()
    promise(len(found.trainers) + len(found.waiting) <= _RECORDS, "more jobs than records")
    states = [
        advance(TrainerState(), one.array, one.elements, 0.0, keep_s=0.0)[0]
        for one in found.trainers
    ]
    views_of(zip(found.trainers, states, strict=True), found.ordinary_nodes)
    for trainer in found.trainers:
        why_never(trainer.demands)
        promise(trainer.array in range(1, _RECORDS + 1), "an array that squeue has not named")
        promise(trainer.user == "alice", "somebody else's")
    known = [status.entry_from_slurm(trainer) for trainer in found.trainers]
    _show(
        {
            "down": "down",
            "pool": None,
            "malformed": {str(array): why for array, why in found.malformed.items()},
            "trainers": known,
        }
    )


_ODD: tuple[Any, ...] = (
    *(None, True, "", "\x1b]0;mine\x07", "a\nb", "\ud800", "9" * 50, [], {}, [None], {"": None}),
    *(-1, 0, 10**9, 10**30, 1e308, float("inf"), float("nan"), -0.5, "nan", ["\x9b1m"], [[]]),
)
_DOCUMENT: dict[str, Any] = json.loads(Path(__file__).with_name("status.json").read_text())


def _replace(found: Any, which: int, value: Any) -> None:
    """Put a value in the place of another one, counted through the whole document."""
    places: list[tuple[Any, Any]] = []
    open_ends = [found]
    while open_ends:
        one = open_ends.pop()
        inside = one.items() if isinstance(one, dict) else enumerate(one)
        for key, below in list(inside):
            places.append((one, key))
            if isinstance(below, dict | list):
                open_ends.append(below)
    if places:
        holder, key = places[which % len(places)]
        holder[key] = copy.deepcopy(value)


_RECORDS = 3
_LONG_NUMBER = re.compile(r"\d{4,}")  # Slurm's MaxArraySize bounds the tasks that there can be
_STATES = ("PENDING", "RUNNING", "COMPLETING", "CANCELLED", "SPECIAL_EXIT")


@dataclass(frozen=True)
class _Squeue:
    """Prints as squeue and scontrol do; what users can write there is taken from ``texts``."""

    texts: list[str]

    def read(self, *command: str) -> str:
        if command[0] == "scontrol":
            return f"JobId=1 JobName={self.texts[0]} ExcNodeList=n2 NodeList=(null)\n"
        if command[-1] == "--version":
            return "slurm 22.05.8\n"
        form = command[-1].removeprefix("--format=")
        records = []
        for at in range(_RECORDS):
            name, comment, tasks = (self._text(3 * at + part) for part in range(3))
            tasks = _LONG_NUMBER.sub("999", tasks)
            values = dict.fromkeys("FA", str(at + 1)) | dict.fromkeys("VSe", "1795214324")
            values |= {"K": tasks, "T": _STATES[len(name) % len(_STATES)], "r": "None", "Q": "0"}
            values |= {"N": "n1", "n": "", "Y": "", "D": "1", "P": "bftrainer", "u": "alice"}
            values |= {"j": name, "k": comment, "f": name, "x": "n2", "W": "", "v": ""}
            values |= dict.fromkeys("lEmb", comment) | dict.fromkeys("cC", "1")
            values |= {"h": "OK", "q": "normal"}
            first, *rest = form.split("%")[1:]
            mark = first[1:]
            fields = [first[0], *(word[0] for word in rest)]
            records.append("".join(values[field] + mark for field in fields) + ".\n")
        return "".join(records)

    def _text(self, at: int) -> str:
        return self.texts[at] if at < len(self.texts) else self.texts[0]


def _show(found: dict[str, Any]) -> None:
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(None):
        with fail_if_unreadable():
            _promise_clean(safe_lines("\n".join(status.status_lines(found))))
        for one in found["trainers"]:
            with fail_if_unreadable():
                _promise_clean(safe_lines("\n".join(show.lines(one))))
            with fail_if_unreadable():
                _promise_clean(safe_lines("\n".join(explain.lines(one, found, now_s=0.0))))


def _promise_clean(text: str) -> None:
    promise(text.replace("\n", "").isprintable(), f"not for a terminal: {text!r}")


def _promise_same_note(note: NumberedNote) -> None:
    written = write_line({"note": note})
    promise(len(written) < MAX_ANSWER, "a note that the controller does not take")
    again = read_line(written, NOTE)
    promise(again == note or math.isnan(note.time_s), "a note is read back as another")
