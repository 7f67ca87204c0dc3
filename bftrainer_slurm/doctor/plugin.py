"""Checks Slurm's version and the SPANK plugin: listed, optional, loaded, and its settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bftrainer_slurm import __version__
from bftrainer_slurm.controller.state.bad_nodes import mute_sentence
from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import (
    PLUGSTACK,
    Change,
    Finding,
    conf,
    consider,
    must,
    ok,
    shell,
    unknown,
)
from bftrainer_slurm.doctor.plugstack import PluginLine

_OLDEST = (22, 5)
_TESTED = ("22.05", "24.11", "26.05")
_LINE = Change(
    PLUGSTACK,
    "optional /usr/local/lib/bftrainer-slurm/bftrainer.so keeper=HOST:6740"
    " python=/usr/local/share/bftrainer-slurm/python",
)

_ON_NODES = (
    "Nothing guards elements there, so trainers avoid these nodes, and try again after "
    "bad_node_s (15 minutes)."
)


def check(facts: Facts) -> Iterator[Finding]:
    """Check the plugin."""
    yield _version(facts)
    yield ok("plugin directory", facts.value("PluginDir") or "not shown")
    plugin, line = facts.plugin, facts.plugin.line
    if plugin.lines is None:
        path = facts.value("PlugStackConfig") or "plugstack.conf"
        yield unknown("plugin's line", f"{path} cannot be read here", "Run the doctor where it is.")
    elif line is None:
        why = "make install installs the plugin; this line loads it. All nodes need both."
        yield must("plugin's line", "plugstack.conf does not name bftrainer.so", why, _LINE)
    else:
        yield from _line(facts, line)
    yield _loaded(facts)
    if facts.network.mute:
        yield must("plugin on the nodes", mute_sentence(facts.network.mute), _ON_NODES)


def _version(facts: Facts) -> Finding:
    value = facts.value("SLURM_VERSION")
    match = re.match(r"(\d+)\.(\d+)", value)
    if match is None:
        return unknown("Slurm", value or "no version is shown", "scontrol does not say.")
    number = (int(match[1]), int(match[2]))
    if number < _OLDEST:
        return must("Slurm", value, "22.05 is the oldest version that we have tested.")
    if match[0] not in _TESTED:
        why = f"We have tested {', '.join(_TESTED)}. Build the plugin for this Slurm; try it first."
        return consider("Slurm", value, why)
    return ok("Slurm", value)


def _line(facts: Facts, line: PluginLine) -> Iterator[Finding]:
    if len(facts.plugin.lines or ()) > 1:
        why = "Slurm loads a plugin once for each line."
        yield must("plugin's line", f"{len(facts.plugin.lines or ())} lines name it", why)
    why = (
        "If a required plugin is missing or built for another Slurm, sbatch fails for everybody, "
        "and a node does not start or is drained."
    )
    found, change = f"{line.listed} {line.path}", facts.in_line("optional")
    yield must("plugin's line", found, why, change, unless=line.listed != "required")
    if facts.plugin.include and "enable_configless" in facts.words("SlurmctldParameters"):
        yield _configless(facts.plugin.include, line)
    if facts.plugin.pyxis_after:
        yield _after_pyxis(facts.plugin.pyxis_after)
    yield from _partition(facts)
    yield from _rewrite(facts)
    yield from _rewriting(facts)
    yield _python(facts)
    yield _announce(facts)


def _loaded(facts: Facts) -> Finding:
    plugin, title = facts.plugin, "plugin loaded"
    if plugin.loaded:
        return ok(title, "sbatch --help shows --bftrainer; compute nodes are not seen")
    if plugin.loaded is None:
        return unknown(title, "there is no sbatch here", "Run the doctor on a login node.")
    if plugin.line is None:
        return must(title, "sbatch --help does not show --bftrainer", "plugstack.conf has no line.")
    change = shell("make -C slurm_plugin && make install")
    if plugin.file_there is False:
        why = "Slurm silently goes on without an optional plugin that is missing."
        return must(title, f"{plugin.line.path} is not on this host", why, change)
    why = "It was probably built for another Slurm: 'sbatch -vv --help' shows Slurm's messages."
    return must(title, "it is listed, but sbatch does not load it", why, change)


def _configless(include: str, line: PluginLine) -> Finding:
    found, title = f"in a file that plugstack.conf includes ({include})", "plugin's line"
    change = Change(PLUGSTACK, line.text)
    if Path(include).is_absolute():
        why = "slurmctld does not send this file to configless nodes. Each needs it at this place."
        return consider(title, found, why, change)
    why = "slurmctld sends only plugstack.conf to configless nodes: none of them loads the plugin."
    return must(title, found, why, change)


def _after_pyxis(pyxis: str) -> Finding:
    why = (
        "In pyxis' containers an image's PYTHONPATH then hides BFTrainer, and torchrun ends at "
        f"once. Put BFTrainer's line after this one: {pyxis}"
    )
    return consider("plugin's line", "pyxis is loaded after it", why)


def _partition(facts: Facts) -> Iterator[Finding]:
    value, wanted = facts.option("partition") or "bftrainer", facts.settings.partition
    if value != wanted:
        why = f"The plugin submits trainers to {value}, the controller looks for them in {wanted}."
        change = facts.in_line("partition", wanted)
        yield must("plugin's partition", value, why, change)


def _rewrite(facts: Facts) -> Iterator[Finding]:
    filters = facts.words("CliFilterPlugins")
    ours = any(name.removeprefix("cli_filter/") == "lua" for name in filters)
    if facts.option("rewrite") == "cli_filter" and not ours:
        why = "The line leaves the rewriting to a cli_filter; without it --bftrainer is refused."
        change = conf("CliFilterPlugins", ",".join([*filters, "cli_filter/lua"]))
        yield must("CliFilterPlugins", ",".join(filters) or "none", why, change)


def _rewriting(facts: Facts) -> Iterator[Finding]:
    if facts.plugin.rewriting:
        why = (
            "sbatch --bftrainer needs Python 3.9 or later (interpreter=) and the folder of python="
        )
        yield must("rewriting of submissions", facts.plugin.rewriting, why)


def _python(facts: Facts) -> Finding:
    folder, package, title = facts.option("python"), facts.plugin.package, "elements' Python"
    if not folder:
        why = (
            "Without it each user's Python needs the package bftrainer-slurm, else torchrun "
            "ends at once."
        )
        change = facts.in_line("python", "/usr/local/share/bftrainer-slurm/python")
        return consider(title, "no python= in the plugin's line", why, change)
    if not package:
        why = "make install puts it there; every compute node needs it at the same place."
        change = shell("make install")
        return must(title, f"{folder} has no bftrainer_slurm package on this host", why, change)
    if package != __version__:
        why = f"The controller is {__version__}; both should have the same version."
        return must(title, f"{folder} has {package}", why, shell("make install"))
    why = "srun -N1 python3 -c 'import sys, torch; print(sys.version, torch.__version__)'"
    found = f"{folder} has {package}; this host does not show users' own Python and torch"
    needed = "They need torch 2.6 or later"
    return unknown(title, found, f"{needed}. Try: {why}")


def _announce(facts: Facts) -> Finding:
    value = facts.option("announce")
    why = (
        "Nobody announces submissions to the keeper: a job that is submitted in the last second "
        "before a backfill pass may miss that pass."
    )
    change = facts.in_line("announce", "IP:PORT")
    return consider("announce", value or "not set", why, change, unless=bool(value))
