"""Which controller a command asks, its keeper and its state folder; and which trainer it is about.

``status`` and ``past`` do the asking.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from bftrainer_slurm.cli.common import fail, fail_on, shown
from bftrainer_slurm.cli.options import FOLDER
from bftrainer_slurm.cli.site import site_keeper
from bftrainer_slurm.controller.settings import SettingsError
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import CredentialError, Munge
from bftrainer_slurm.keeper.disclosure import STATUS_PAYLOAD
from bftrainer_slurm.keeper.home import read_address, read_token
from bftrainer_slurm.keeper.protocol import ProtocolError, parse_address
from bftrainer_slurm.reader.sentences import down

_T = TypeVar("_T")


def personal_state() -> Path:
    """Return the state folder of the user's own controller."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "bftrainer"


@dataclass(frozen=True, slots=True)
class Side:
    """A controller's state folder and its keeper's HOST:PORT, as far as the user gave them."""

    state: Path | None = None
    address: str | None = None

    @property
    def folder(self) -> Path:
        """The state folder: as given, else the user's own."""
        return self.state or personal_state()

    @property
    def owns_folder(self) -> bool:
        """Whether the state folder is of the controller that is asked."""
        return self.state is not None or self.keeper() in (None, read_address(self.folder))

    def keeper(self) -> str | None:
        """Return HOST:PORT of the keeper to ask: as given, else the user's own, else the site's.

        The user's own does not count if its controller has ended and the site has one.
        """
        if self.address:
            return self.address
        own = read_address(self.folder)
        if self.state or (own and works(*Side(address=own).published())):
            return own
        with fail_on(SettingsError):
            site = site_keeper()
        return own if site is None else site.listen

    @property
    def why_silent(self) -> str:
        """Say why nobody may have answered; what the user gave is named."""
        if self.address:
            return f"no controller answers at {self.address} (--keeper)"
        if self.state and read_address(self.state) is None:
            return f"{self.state} is not the state folder of a controller (--state)"
        if self.state:
            return f"the controller of {self.state} (--state) is not running"
        return "the controller is not running, or not where this command looks for it"

    def published(self) -> tuple[float, dict[str, Any] | None]:
        """Return age (seconds) and content of the last published status, None if there is none.

        It holds what its reader may see: all of it with the token in the state folder.
        """
        try:
            return self.ask(KeeperClient.status)
        except KeeperError:
            return 0.0, None

    def ask(self, ask: Callable[[KeeperClient, str], _T]) -> _T:
        """Return what the keeper answers to a client, and a proof of who we are.

        Raises:
            KeeperError: there is none, it does not answer, or not as it should.
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
        # It does not take the proof: ask for what everybody may see.
        try:
            return ask(KeeperClient(address), "")
        except ValueError as error:
            raise KeeperError(str(error)) from error


def works(age_s: float, document: dict[str, Any] | None) -> bool:
    """Whether the controller that published this so long ago works now."""
    return document is not None and down(document, age_s) is None


def _credential() -> str:
    try:
        site = site_keeper()
        return Munge((site.munge_socket if site else "") or None).encode(STATUS_PAYLOAD)
    except (SettingsError, CredentialError):
        return ""


def addresses(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse anything but HOST:PORT, or several of them with commas between."""
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
    callback=addresses,
    help="Where the controller's keeper listens. [default: from --state or the site's file]",
)


def side_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options --state and --keeper; it is called with ``side``."""

    @wraps(command)
    def called(state: Path | None, address: str | None, **others: Any) -> None:
        command(side=Side(state, address), **others)

    return state_option(_keeper_option(called))


_SAFE = re.compile(r"[\w.+-]+")  # a name that no shell takes for more than a word


def the_one(trainers: list[dict[str, Any]], said: str) -> dict[str, Any]:
    """Return the trainer that is meant; end the command if there is none, or more than one."""
    found = [one for one in trainers if said in (str(one["array"]), one["name"])]
    if not found:
        fail(
            f"no trainer '{shown(said)}'; 'bftrainer status' lists them all, 'bftrainer history' "
            "those that have ended, too"
        )
    if len(found) > 1:
        ids = ", ".join(str(one["array"]) for one in found)
        fail(f"{len(found)} trainers are named '{shown(said)}'; say which: {ids}")
    return found[0]


def complete(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the job ids and names that begin so, as published; Slurm is not asked.

    After any error nothing is completed.
    """
    side = Side(context.params.get("state"), context.params.get("address"))
    with contextlib.suppress(Exception, SystemExit):
        trainers = (side.published()[1] or {})["trainers"]
        words = [
            (str(one[key]), shown(one["state"])) for one in trainers for key in ("array", "name")
        ]
        return [
            CompletionItem(word, help=state)
            for word, state in words
            if word.startswith(begun) and _SAFE.fullmatch(word)
        ]
    return []
