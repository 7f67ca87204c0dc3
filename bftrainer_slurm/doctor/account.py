"""Checks the controller's account and folder, MUNGE, clocks, and what users may see."""

from __future__ import annotations

from collections.abc import Iterator

from bftrainer_slurm.controller.settings import SITE_STATE
from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Finding, consider, must, ok, ours, shell, unknown

_RIGHTS = ("Operator", "Administrator")
_CLOCK_S = 5.0
_MUNGE_S = 300.0  # how long a credential is valid


def check(facts: Facts) -> Iterator[Finding]:
    """Check accounts, credentials and clocks."""
    yield _account(facts)
    yield from _state(facts)
    yield from _proofs(facts)
    yield _clock(facts)
    yield _private_data(facts)


def owner(facts: Facts) -> str:
    """Return SlurmUser: the controller runs under this account unless the site chooses another."""
    return facts.value("SlurmUser").partition("(")[0]


def _account(facts: Facts) -> Finding:
    me, slurm, title = facts.host.user, owner(facts), "account"
    operator = shell("sacctmgr modify user NAME set adminlevel=Operator")
    if slurm == "root":
        why = "The controller refuses to run as root; it needs an operator's account in Slurm."
        return consider(title, "SlurmUser is root", why, operator)
    if me in (slurm, "root"):
        return ok(title, f"the controller runs as SlurmUser ({slurm}); this is {me}")
    if facts.host.admin_level in _RIGHTS:
        return ok(title, f"{me} is {facts.host.admin_level}; run it with --mode site")
    level = facts.host.admin_level or "not known to Slurm's accounting"
    why = f"Run the controller as {slurm}, or as an operator. Run the doctor as the same account."
    return unknown(title, f"{me} is {level}", why, operator)


def _state(facts: Facts) -> Iterator[Finding]:
    folder, holder = SITE_STATE, facts.host.state_owner
    if holder is None:
        return
    title = "state folder"
    if holder not in (owner(facts), facts.host.user, "root"):
        command = f"chown -R {owner(facts)} {folder}"
        why = "The controller refuses a folder that belongs to another account."
        yield must(title, f"{folder} belongs to {holder}", why, shell(command))
    elif facts.host.state_mode & 0o022:
        command = f"chmod go-w {folder}"
        why = "The controller trusts this folder: who can write there can mislead it."
        yield must(title, f"others can write to {folder}", why, shell(command))
    else:
        yield ok(title, f"{folder} belongs to {holder}")


def _proofs(facts: Facts) -> Iterator[Finding]:
    kind, key = facts.value("AuthType"), facts.settings.key_file
    line = facts.plugin.line
    if kind == "auth/munge":
        yield _munge(facts)
        return
    if not key:
        why = "Without MUNGE members prove their user by a key that root can read on every node."
        change = ours("key_file", '"/etc/bftrainer/bftrainer.key"')
        yield must("AuthType", f"{kind}, and no key_file in bftrainer.toml", why, change)
    if line is not None and not facts.option("key_file"):
        why = "The plugin makes each trainer's secret from it."
        path = key or "/etc/bftrainer/bftrainer.key"
        change = facts.in_line("key_file", path)
        yield must("key_file=", "not set in the plugin's line", why, change)
    if key and facts.option("key_file"):
        yield ok("AuthType", f"{kind}, with the key in {key}")


def _munge(facts: Facts) -> Finding:
    trouble, title = facts.host.munge, "MUNGE"
    if trouble is None:
        return unknown(title, "not asked", "It is used if bftrainer.toml names no key_file.")
    if not trouble:
        return ok(title, "makes credentials here")
    why = "Without MUNGE no element can prove its user, and none trains. (munge_socket= names it.)"
    change = shell("systemctl start munge")
    return must(title, trouble, why, change)


def _clock(facts: Facts) -> Finding:
    ahead_s, title = facts.host.clock_ahead_s, "clocks"
    if ahead_s is None:
        return unknown(title, "slurmctld does not show its time", "Compare: date; ssh NODE date")
    way = "ahead of" if ahead_s > 0 else "behind"
    found = f"slurmctld's clock is {abs(ahead_s):.0f} s {way} this host's"
    if abs(ahead_s) < _CLOCK_S:
        return ok(
            title,
            "the clocks of this host and slurmctld agree; those of compute nodes are not seen",
        )
    why = (
        f"Times of holes and jobs come from both clocks. MUNGE refuses a clock {_MUNGE_S:g} s off."
    )
    change = shell("systemctl enable --now chrony")
    return must(title, found, why, change)


def _private_data(facts: Facts) -> Finding:
    hidden = facts.words("PrivateData")
    why = (
        "SlurmUser and operators see all jobs, as the controller must. But 'bftrainer status' "
        "shows every user the names, owners and nodes of all trainers, which squeue hides here."
    )
    return consider("PrivateData", ",".join(hidden) or "none", why, unless="jobs" not in hidden)
