"""The commented example of ``bftrainer.toml``, made from what ``settings`` says. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator

from bftrainer_slurm.controller.settings import Rule, rules

_HEADER = """\
# Settings of BFTrainer's controller and keeper: /etc/bftrainer/bftrainer.toml, or bftrainer.toml
# beside slurm.conf, not both. Every line below is the default; take the '#' away to change one.
#   bftrainer controller --check               says whether the file is right
#   systemctl reload bftrainer-controller      takes it up; a file that is not right changes nothing
# 'restart' marks what a running controller keeps until it is started again, which costs trainers
# nothing. The first four are the keeper's too: start that again as well.
"""


def example() -> str:
    """Return the file."""
    return _HEADER + "".join(
        "\n" + "\n".join(_entry(name, default, rule)) + "\n"
        for name, (default, rule) in rules().items()
    )


def _entry(name: str, default: object, rule: Rule) -> Iterator[str]:
    marks = [f"{rule.least:g} to {rule.most:,.10g} {rule.unit}"] if rule.unit else []
    marks += ["restart"] if rule.kept else []
    about = rule.about + (f" [{'; '.join(marks)}]" if marks else "")
    yield from textwrap.wrap(about, 98, initial_indent="# ", subsequent_indent="# ")
    yield f"#{name} = {json.dumps(default)}"
