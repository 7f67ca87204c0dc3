"""The controller that a command asks: its keeper and its state folder. Also finds trainers by name.

``status`` and ``past`` send the requests.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from bftrainer_slurm.cli.common import fail, fail_on, safe
from bftrainer_slurm.cli.options import FOLDER
from bftrainer_slurm.cli.site import site_keeper
from bftrainer_slurm.controller.settings import SettingsError
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import CredentialError
from bftrainer_slurm.keeper.disclosure import STATUS_PAYLOAD
from bftrainer_slurm.keeper.home import read_address, read_token
from bftrainer_slurm.keeper.munge import Munge
from bftrainer_slurm.keeper.protocol import ProtocolError, parse_address
from bftrainer_slurm.reader.sentences import down

_T = TypeVar("_T")


def personal_state() -> Path:
    """Return the state folder of the user's own controller."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "bftrainer"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A controller's state folder and its keeper's HOST:PORT, as far as the user gave them."""

    state: Path | None = None
    address: str | None = None

    @property
    def folder(self) -> Path:
        """The state folder: as given, else the user's own."""
        return self.state or personal_state()

    @property
    def owns_folder(self) -> bool:
        """Whether the state folder belongs to the controller that is asked."""
        return self.state is not None or self.keeper() in (None, read_address(self.folder))

    def keeper(self) -> str | None:
        """Return HOST:PORT of the keeper to ask: as given, else the user's own, else the site's.

        The user's own keeper does not count if its controller has ended and the site has a keeper.
        """
        if self.address:
            return self.address
        own = read_address(self.folder)
        if self.state or (own and is_working(*Endpoint(address=own).read_status())):
            return own
        with fail_on(SettingsError):
            site = site_keeper()
        return own if site is None else site.listen

    @property
    def silence_reason(self) -> str:
        """Say why perhaps nobody answered, with the options that the user gave."""
        if self.address:
            return f"no controller answers at {self.address} (--keeper)"
        if self.state and read_address(self.state) is None:
            return f"{self.state} is not the state folder of a controller (--state)"
        if self.state:
            return f"the controller of {self.state} (--state) is not running"
        return "the controller is not running, or not where this command looks for it"

    def read_status(self) -> tuple[float, dict[str, Any] | None]:
        """Return age (seconds) and content of the last published status, None without a status.

        It has what this user may see: everything with the token in the state folder.
        """
        try:
            return self.ask(KeeperClient.status)
        except KeeperError:
            return 0.0, None

    def ask(self, ask: Callable[[KeeperClient, str], _T]) -> _T:
        """Call ``ask`` with a client of the keeper and our credential; return its result.

        Raises:
            KeeperError: there is no keeper, it does not answer, or its answer is wrong.
        """
        address = self.keeper()
        if address is None and self.state:
            raise KeeperError(f"{self.state} is not the state folder of a controller")
        if address is None:
            raise KeeperError("no controller found; say where it is with --state or --keeper")
        token = read_token(self.folder) if read_address(self.folder) == address else ""
        credential = "" if token else _credential()
        try:
            return ask(KeeperClient(address, token), credential)
        except (KeeperError, ValueError) as error:
            if not (token or credential):
                raise KeeperError(str(error)) from error
        # The keeper refuses the credential: ask for what everybody may see.
        try:
            return ask(KeeperClient(address), "")
        except ValueError as error:
            raise KeeperError(str(error)) from error


def is_working(age_s: float, document: dict[str, Any] | None) -> bool:
    """Return whether the controller works now, by the age and content of its last status."""
    return document is not None and down(document, age_s) is None


def _credential() -> str:
    try:
        site = site_keeper()
        return Munge((site.munge_socket if site else "") or None).encode(STATUS_PAYLOAD)
    except (SettingsError, CredentialError):
        return ""


def check_addresses(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse anything but HOST:PORT, or several of them separated by commas."""
    try:
        for one in value.split(",") if value else ():
            parse_address(one)
    except ProtocolError as error:
        raise click.BadParameter(f"{error}", param=parameter) from error
    return value


state_option = click.option(
    "--state",
    type=FOLDER,
    envvar="BFTRAINER_STATE",
    help="The controller's state folder. [default: $BFTRAINER_STATE, else your own]",
)
_keeper_option = click.option(
    "--keeper",
    "address",
    metavar="HOST:PORT",
    envvar="BFTRAINER_KEEPER",
    callback=check_addresses,
    help="Where the controller's keeper listens. [default: from --state or the site's file]",
)


def endpoint_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options --state and --keeper; it gets an ``endpoint``."""

    @wraps(command)
    def called(state: Path | None, address: str | None, **others: Any) -> None:
        command(endpoint=Endpoint(state, address), **others)

    return state_option(_keeper_option(called))


_SAFE = re.compile(r"[\w.+-]+")  # names that every shell takes as one word


def find_trainer(document: Mapping[str, Any], said: str) -> dict[str, Any]:
    """Return a status's trainer with this id or name; end the command unless there is just one."""
    trainers: list[dict[str, Any]] = document["trainers"]
    found = [one for one in trainers if said in (str(one["array"]), one["name"])]
    if not found and said in document["malformed"]:
        fail(f"job {said} is left alone: {safe(document['malformed'][said], 400)}")
    if not found:
        fail(
            f"no trainer '{safe(said)}'; 'bftrainer status' lists them all, 'bftrainer history' "
            "those that have ended, too"
        )
    if len(found) > 1:
        ids = ", ".join(str(one["array"]) for one in found)
        fail(f"{len(found)} trainers are named '{safe(said)}'; say which: {ids}")
    return found[0]


def complete(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the published job ids and names that begin with ``begun``; Slurm is not asked.

    After any error there are no completions.
    """
    endpoint = Endpoint(context.params.get("state"), context.params.get("address"))
    with contextlib.suppress(Exception, SystemExit):
        trainers = (endpoint.read_status()[1] or {})["trainers"]
        words = [
            (str(one[key]), safe(one["state"])) for one in trainers for key in ("array", "name")
        ]
        return [
            CompletionItem(word, help=state)
            for word, state in words
            if word.startswith(begun) and _SAFE.fullmatch(word)
        ]
    return []
