"""What is fuzzed: a new target is an entry here, and a function or a file in slurm_plugin/fuzz."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")


@dataclass(frozen=True, slots=True)
class Target:
    """One way in. ``module`` of this folder has the function of that name (None: it is in C).

    ``words`` are put into inputs, which have at most ``longest`` bytes.
    """

    name: str
    what: str
    module: str | None = None
    words: tuple[str, ...] = ()
    longest: int = 2_000

    def corpus(self) -> list[bytes]:
        """Return the inputs that are kept in the repository."""
        texts: list[str] = json.loads((CORPUS / f"{self.name}.json").read_text())
        return [text.encode("latin-1") for text in texts]

    def function(self) -> Callable[[bytes], None]:
        """Return what takes an input; of targets in Python only."""
        module = import_module(f"tests.fuzz.{self.module}")
        found: Callable[[bytes], None] = getattr(module, self.name)
        return found


_SPEC = (
    *("bftrainer:", "min=", "max=", "weight=", "grace=", "minutes="),
    *("personal=1", "id=0123abcd", "task=0", "(null)"),
)
_OPTIONS = (
    *("--array=", "--partition=main", "--time=", "--ntasks-per-node=1", "--comment=", "--hold"),
    *("--gpus=a100:4", "--gres=gpu:2", "--mem-per-gpu=4G", "--cpus-per-gpu=2", "-n8", "-w n[1-4]"),
    *("--dependency=singleton", "--bftrainer=", "sizes=2:4", "1-02:03:04", "gpu:a100:4"),
)
_RANGE = ("#SBATCH ", "-N", "--nodes=", "--nodes", "2-4", "-QN", "\n", " ", "'")
_ANSWER = ("set\0nodes\0" + "1\0", "say\0\0", "refuse", "\0", "done\0\0\0")
_LINE = (
    *("status", "history ", "hello 13 ", "challenge ", "proof ", "refused ", "submitted", "0" * 32),
    *("leaving ", "gone ", '{"note":{"number":', '"time_s":', '"kind":"failed"', "12 "),
)
_JSON = ("true", "null", "1e400", "NaN", "-1", "9" * 40, '"\\ud800"', '"\\u0000"', "[[", "{}")
_MEMBER = (
    *('"ping":{"number":', '"measured":{"measures":[[', '"ready":{', '"cause":"new"'),
    *('"cause":"failed"', '"batch":{"doing":"leads"', '"step":', '"turn":{"do":"join"'),
    *('"error":', '"change":', '"storeat":{"endpoint":"n1:1"'),
    *('"up":{"task":1', '"own":{"array":12', '"part":{"tasks":[', '"join":{"identity":{'),
    *('"generation":', '"leave":{}', '"done":{}', '"held":', '"role":"agent"'),
)
_STEPS = (
    *(
        "\0000!agent\0",
        "\0001!agent\0",
        "\0002!agent\0",
        "\0003!batch\0",
        "\0000!wait\0",
        "\0002!token\0",
    ),
    *("\0001!close\0", "hello 13 12 ", "proof ", '{"ready":{"cause":"change","error":""}}\n\0'),
    *('{"storeat":{"endpoint":"n1:1","generation":1}}\n\0', '{"leave":{}}\n\0'),
    *('{"batch":{"doing":"waits"}}\n\0', '{"done":{}}\n\0'),
)
_TALK = _STEPS + _MEMBER + _JSON

TARGETS = (
    Target("words", "C: what an element is told", words=("0.5", "16", "-", " ", "."), longest=60),
    Target("program", "C: the rewriting program's answer", words=_ANSWER, longest=600),
    Target("path_list", "C: a user's PYTHONPATH", words=("/opt/py", ":"), longest=600),
    Target("option", "the option's value", "submissions", _SPEC, 600),
    Target("comment", "a trainer's comment", "submissions", _SPEC, 600),
    Target("rewriting", "a command line and a script", "submissions", _RANGE + _OPTIONS),
    Target("submission", "what the plugin hands over", "submissions", _OPTIONS + _SPEC, 600),
    Target("line", "the keeper's line protocol", "strangers", _LINE),
    Target("message", "members' messages", "strangers", _MEMBER + _JSON),
    Target("answer", "a keeper that is none", "strangers", _LINE + _JSON, 6_000),
    Target("document", "a status that is none", "strangers", _JSON, 6_000),
    Target("queue", "texts in job records", "strangers", _SPEC + ("0-2:1%3",)),
    Target("conversation", "strangers and members speak with the keeper", "conversation", _TALK),
)
BY_NAME = {target.name: target for target in TARGETS}
