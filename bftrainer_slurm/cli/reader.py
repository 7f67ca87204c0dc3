"""``bftrainer reader``: the page, metrics and the history, in a process beside the controller."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from bftrainer_slurm.cli.common import fail, fail_on
from bftrainer_slurm.cli.endpoint import personal_state, state_option
from bftrainer_slurm.cli.site import site_settings
from bftrainer_slurm.controller.settings import SITE_STATE, SettingsError
from bftrainer_slurm.keeper.protocol import ProtocolError, parse_address

_ANY_PORT = "127.0.0.1:0"


@click.command()
@state_option
@click.option(
    "--site",
    is_flag=True,
    help="Take the address from the site's settings (metrics= in bftrainer.toml).",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help=f"Where the page and metrics are served, or 'off'. [default: {_ANY_PORT}, any port]",
)
def reader(state: Path | None, site: bool, listen: str | None) -> None:
    """Serve the web page, metrics and the history, until SIGTERM or Ctrl-C.

    It runs beside the controller, on the same host and with the same account and state folder. It
    only reads. Without it trainers train as ever; the page and metrics are missing, and users of a
    site cannot read the history.

    \b
    Examples:
      bftrainer reader --site --state /var/lib/bftrainer     (as SlurmUser)
      bftrainer reader --listen 127.0.0.1:6741               (as yourself)
    """
    if site and listen:
        fail("--site or --listen, not both")
    shared = None
    if site:
        with fail_on(SettingsError):
            settings = site_settings()
        listen, shared = settings.page or "off", settings.folder
    with fail_on(ProtocolError, begin="--listen: "):
        address = None if listen == "off" else parse_address(listen or _ANY_PORT)
    from bftrainer_slurm.keeper.home import StateError
    from bftrainer_slurm.reader.serving import run

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
    try:
        run(state or (SITE_STATE if site else personal_state()), address, shared)
    except StateError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")
