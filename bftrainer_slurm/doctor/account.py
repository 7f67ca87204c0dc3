"""Checks the controller's account and folder, the site's key, clocks, and what users may see."""

from __future__ import annotations

from collections.abc import Iterator

from bftrainer_slurm.controller.settings import SITE_STATE
from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Finding, consider, must, ok, shell, unknown

_RIGHTS = ("Operator", "Administrator")
_CLOCK_S = 5.0
_MUNGE_S = 300.0  # how long a credential is valid


def check(facts: Facts) -> Iterator[Finding]:
    """Check accounts, credentials and clocks."""
    yield _account(facts)
    yield from _state(facts)
    yield _key(facts)
    yield from _munge(facts)
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


def _key(facts: Facts) -> Finding:
    """Check the key on this host; what is wrong on a node, its elements say."""
    path, trouble, title = facts.settings.key_file, facts.host.key, "site's key"
    if trouble == "":
        return ok(title, f"{path} is here, and only its owner reads it; nodes need the same")
    make = f"(umask 077; head -c 32 /dev/urandom | base64 > {path})"
    if trouble is None:
        why = f"Run the doctor as {owner(facts)}, who must be able to read it on control hosts."
        return unknown(title, f"{facts.host.user} cannot read {path}", why)
    why = (
        "By it nodes and keeper know each other: nothing trains without it. The same file belongs "
        f"on each control host ({owner(facts)} owns it) and each compute node (root owns it)."
    )
    return must(title, trouble, why, shell(f"{make}; chown {owner(facts)} {path}"))


def _munge(facts: Facts) -> Iterator[Finding]:
    trouble, title = facts.host.munge, "MUNGE"
    if trouble is None:
        return
    why = "Without MUNGE nobody sees details of their own trainers alone. (munge_socket= names it.)"
    change = shell("systemctl start munge")
    yield consider(title, trouble or "makes credentials here", why, change, unless=not trouble)


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
