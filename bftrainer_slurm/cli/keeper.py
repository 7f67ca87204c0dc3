"""``bftrainer keeper``: the keeper by itself, as a service of its own."""

from __future__ import annotations

from pathlib import Path

import click

from bftrainer_slurm.cli.common import fail, fail_on
from bftrainer_slurm.cli.endpoint import check_addresses, personal_state, state_option
from bftrainer_slurm.cli.options import FILE, given_options
from bftrainer_slurm.cli.site import site_settings
from bftrainer_slurm.controller.settings import Settings, SettingsError
from bftrainer_slurm.keeper.credentials import Means


@click.command()
@state_option
@click.option(
    "--site",
    is_flag=True,
    help="Take the other options from the site's settings (bftrainer.toml), like the controller.",
)
@click.option(
    "--listen",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    callback=check_addresses,
    help="Where nodes reach it.",
)
@click.option(
    "--key-file",
    type=FILE,
    help="The site's key, which root has on the nodes, too (key_file= of the plugin). Without it "
    "the keeper is for your own trainers.",
)
@click.option(
    "--munge-socket", metavar="PATH", help="Where munged listens, if not at the usual place."
)
def keeper(
    state: Path | None,
    site: bool,
    listen: str,
    key_file: Path | None,
    munge_socket: str | None,
) -> None:
    """Run the keeper by itself: the process that holds the rendezvous.

    'bftrainer controller' starts a keeper if none answers. Run the keeper as a service of its own
    if your service manager would end it together with the controller. docs/failover.md says how to
    use a second host for it, with --site.

    \b
    Examples:
      bftrainer keeper --state /var/lib/bftrainer --site
      bftrainer keeper --state /var/lib/bftrainer --listen ctl.example.org:6740 \\
          --key-file /etc/bftrainer/bftrainer.key
    """
    from bftrainer_slurm.keeper.__main__ import serve

    means, shared = Means(key_file, munge_socket), None
    if site:
        others = given_options().keys() & {"listen", "munge_socket", "key_file"}
        if others:  # the site's settings have these
            fail(f"--site or {given_options()[min(others)]}, not both")
        listen, means, shared = _site_options()
    raise SystemExit(serve(state or personal_state(), listen, means, shared))


def _site_options() -> tuple[str, Means, Path | None]:
    with fail_on(SettingsError):
        settings = site_settings()
    if settings.listen == Settings().listen:
        fail("the site's settings have no listen: add the address where nodes reach the keeper")
    return settings.listen, settings.means, settings.folder
