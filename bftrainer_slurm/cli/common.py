"""What the commands share: finding the controller's side, and how errors end a command."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from bftrainer_slurm.cli.site import site_keeper
from bftrainer_slurm.cli.terminal import Heading, styled
from bftrainer_slurm.controller.settings import SettingsError
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import CredentialError, Munge
from bftrainer_slurm.keeper.disclosure import STATUS_PAYLOAD
from bftrainer_slurm.keeper.home import read_address, read_token

_T = TypeVar("_T")

BAD_INPUT = 2
_LONGEST_LINE = 4_000  # characters
NOT_THERE = 3  # the controller's side, or Slurm, does not answer

state_option = click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="BFTRAINER_STATE",
    help="The controller's state folder. [default: $BFTRAINER_STATE, else your own]",
)
keeper_option = click.option(
    "--keeper",
    "address",
    metavar="HOST:PORT",
    envvar="BFTRAINER_KEEPER",
    help="Where the controller's keeper listens. [default: from --state or the site's file]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def finite(_: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Refuse nan, which is within every FloatRange, and infinity."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number to count with.", param=parameter)
    return value


def fail(message: str, code: int = BAD_INPUT) -> NoReturn:
    """End the command with one line on stderr."""
    click.echo(f"bftrainer: {' '.join(message.split())}", err=True)
    raise SystemExit(code)


def personal_state() -> Path:
    """Return the state folder of one's own controller."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "bftrainer"


def find_keeper(state: Path | None, address: str | None) -> str | None:
    """Return HOST:PORT of the keeper to ask: as said, else one's own, else the site's."""
    if address:
        return address
    found = read_address(state or personal_state())
    if found is None and state is None:
        try:
            site = site_keeper()
            return None if site is None else site.listen
        except SettingsError as error:
            fail(str(error))
    return found


def published_status(
    address: str | None, state: Path | None = None
) -> tuple[float, dict[str, Any] | None]:
    """Return age (seconds) and content of the last published status, None where there is none.

    As far as its reader may see it: with the token in ``state`` (None: one's own folder) all of it.
    """
    if address is None:
        return 0.0, None
    try:
        return ask_keeper(address, state, KeeperClient.status)
    except KeeperError:
        return 0.0, None


def ask_keeper(address: str, state: Path | None, ask: Callable[[KeeperClient, str], _T]) -> _T:
    """Return what the keeper answers to a client, and a proof of who we are.

    Raises:
        KeeperError: it does not answer, or not as it should.
    """
    token = own_token_of(state, address)
    credential = "" if token else _credential()
    try:
        return ask(KeeperClient(address, token), credential)
    except (KeeperError, ValueError) as error:
        if not (token or credential):
            raise KeeperError(str(error)) from error
    # It does not take the proof: what is everybody's.
    try:
        return ask(KeeperClient(address), "")
    except ValueError as error:
        raise KeeperError(str(error)) from error


def own_token_of(state: Path | None, address: str) -> str:
    """Return the token of one's own keeper; empty where the one at this address is not."""
    folder = state or personal_state()
    return read_token(folder) if read_address(folder) == address else ""


def _credential() -> str:
    try:
        site = site_keeper()
        return Munge((site.munge_socket if site else "") or None).encode(STATUS_PAYLOAD)
    except (SettingsError, CredentialError):
        return ""


@contextmanager
def fail_where_unreadable() -> Iterator[None]:
    """End the command in one line where a status is not what a controller of ours publishes."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever reads has enough: click ends the command
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {shown(error)}"
        fail(f"the status cannot be read; is it of another version? ({what})", NOT_THERE)


def safe_lines(text: str) -> str:
    """Make lines safe for a terminal, whoever wrote what is in them."""
    return "\n".join(shown(line, _LONGEST_LINE) for line in text.split("\n"))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, safe for a terminal whoever wrote what is in them."""
    for line in lines:
        text = shown(line, _LONGEST_LINE)
        click.echo(styled(text, bold=True) if isinstance(line, Heading) else text)


def print_json(document: object) -> None:
    """Print a document as JSON."""
    click.echo(json.dumps(document, indent=2))


def shown(text: object, most: int = 60) -> str:
    """Make text from outside safe for a terminal: no control characters, and not too long."""
    return "".join(char if char.isprintable() else "?" for char in str(text)[:most])
