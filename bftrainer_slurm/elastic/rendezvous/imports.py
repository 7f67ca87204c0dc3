"""Which framework modules a script will import, read from its text, so that warm workers have them.

Only frameworks that are known to be safe to fork; no code of the script is run.
"""

from __future__ import annotations

import ast
import contextlib
import io
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

# What a framework imports only later, mostly when its trainer is made.
_LATER = {
    "accelerate": ("accelerate.checkpointing",),
    "lightning": ("lightning.pytorch",),
    "pytorch_lightning": (),
    "torch": (),
    "transformers": ("transformers.trainer", "transformers.integrations"),
}


def of_script(command: Sequence[str]) -> list[str]:
    """Return the modules for the script of torchrun's command line, in the order of import."""
    try:
        script = _script(command[1:])
        tree = ast.parse(script.read_bytes())
    except (OSError, SyntaxError, ValueError, SystemExit):
        return []  # it is a module, or torchrun says what is wrong
    found: dict[str, None] = {}
    for module in _imported(tree):
        top = module.partition(".")[0]
        if top in _LATER and not _is_own(script.parent, top):
            found |= dict.fromkeys((top, module, *_LATER[top]))
    return list(found)


def load(name: str) -> None:
    """Import a module, or an attribute of a module, which may import it only then.

    Raises:
        Exception: whatever the import raises.
    """
    module, _, part = name.rpartition(".")
    try:
        import_module(name)
    except ModuleNotFoundError:
        getattr(import_module(module), part)


def _script(arguments: Sequence[str]) -> Path:
    from torch.distributed.run import get_args_parser

    with contextlib.redirect_stderr(io.StringIO()):  # torchrun says itself what is wrong
        return Path(get_args_parser().parse_args(arguments).training_script)


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _is_own(folder: Path, name: str) -> bool:
    return (folder / name).exists() or (folder / f"{name}.py").exists()
