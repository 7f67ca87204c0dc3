"""``bftrainer controller``: the daemon, in the foreground."""

from __future__ import annotations

import getpass
import json
import logging
import os
from pathlib import Path

import click

from bftrainer_slurm.cli.common import NO_ANSWER, fail, fail_on
from bftrainer_slurm.cli.endpoint import personal_state, state_option
from bftrainer_slurm.cli.options import FILE
from bftrainer_slurm.cli.site import site_file, site_files, site_settings
from bftrainer_slurm.controller.settings import SITE_STATE, Settings, SettingsError, rules
from bftrainer_slurm.controller.settings_file import example, read_settings
from bftrainer_slurm.slurm.gateway import CHOICES


def _print_example(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(example(), nl=False)
        context.exit()


def _check_settings(config: Path | None) -> None:
    """Check the settings, and print those that differ from the defaults."""
    with fail_on(SettingsError):
        path = config or site_file()
        settings = site_settings(path)
    click.echo(f"{path}: all is right" if path else f"no {' or '.join(site_files())}: the defaults")
    for name in rules():
        value = getattr(settings, name)
        if value != getattr(Settings(), name):
            click.echo(f"{name} = {json.dumps(value)}")


def oserror_message(error: OSError, state: Path | None, shared: str) -> str:
    """Say which file or folder cannot be used, and what to do about it."""
    path = str(error.filename or state)
    remedy = "choose another folder with --state"
    if shared and Path(path).is_relative_to(shared):
        remedy = "SlurmUser must be able to use the folder 'shared' of bftrainer.toml on all hosts"
    return f"{path}: {error.strerror}; {remedy}"


@click.command()
@state_option
@click.option(
    "--config",
    type=FILE,
    help="A TOML file of settings. [default in site mode: bftrainer.toml, beside slurm.conf or in "
    "/etc/bftrainer]",
)
@click.option(
    "--mode",
    type=click.Choice(["site", "personal"]),
    help="Serve the trainers of all users, or only yours. [default: site for SlurmUser]",
)
@click.option("--partition", metavar="NAME", help="The preemptible partition of the trainers.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="The keeper's address, as nodes reach it. If two hosts can run the keeper: both.",
)
@click.option(
    "--gateway",
    type=click.Choice(CHOICES),
    help="How the queue and the nodes are read. [default: as in the settings]",
)
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@click.option(
    "--check",
    is_flag=True,
    help="Check the site's settings, or those of --config; start nothing.",
)
@click.option(
    "--example",
    is_flag=True,
    callback=_print_example,
    expose_value=False,
    is_eager=True,
    help="Print a commented settings file.",
)
def controller(
    state: Path | None,
    config: Path | None,
    mode: str | None,
    verbose: bool,
    check: bool,
    **given: str | None,  # settings
) -> None:
    """Run the controller in the foreground, until SIGTERM or Ctrl-C. Trainers go on without it.

    As SlurmUser it runs everybody's trainers; as an ordinary user it runs the trainers that this
    user submitted with 'bftrainer submit', and needs nothing installed on the cluster.

    It ends with status 1 if it has to start again, because the clock was set or its turns fail.

    \b
    Examples:
      bftrainer controller --listen ctl.example.org:6740     (as SlurmUser)
      bftrainer controller --partition preempt               (as yourself)
      bftrainer controller --check --config bftrainer.toml
    """
    if check:
        _check_settings(config)
        return
    from bftrainer_slurm.controller.daemon import Scope, run
    from bftrainer_slurm.controller.state.history import HistoryError
    from bftrainer_slurm.controller.turns import RestartError
    from bftrainer_slurm.keeper.client import KeeperError
    from bftrainer_slurm.keeper.home import StateError
    from bftrainer_slurm.slurm.configuration import slurm_user
    from bftrainer_slurm.slurm.gateway import GatewayError
    from bftrainer_slurm.slurm.open import open_gateway

    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(message)s",
    )
    me, shared = getpass.getuser(), ""
    try:
        read_settings(config)  # report a bad file before Slurm is asked
        owner = slurm_user()
        mode = mode or ("site" if me == owner else "personal")
        if os.getuid() == 0:
            fail(
                f"do not run it as root: run it as SlurmUser ({owner}), or as an operator with "
                "--mode site"
            )
        if mode == "site":
            settings = site_settings(config, **given)
        else:
            settings = read_settings(config, operator=False, **given)
        shared = settings.shared
        state = state or (SITE_STATE if mode == "site" else personal_state())
        scope = Scope(user=None if mode == "site" else me)
        run(state, scope, settings, open_gateway(settings.gateway, settings.share))
    except (SettingsError, HistoryError, StateError) as error:
        fail(str(error))
    except RestartError as error:
        fail(f"{error}: the controller has to start again; systemd starts a site's by itself")
    except OSError as error:
        fail(oserror_message(error, state, shared))
    except (GatewayError, KeeperError) as error:
        fail(str(error), NO_ANSWER)
