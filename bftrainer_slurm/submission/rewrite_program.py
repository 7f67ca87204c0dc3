"""The program that the SPANK plugin and cli_filter.lua run: a document in, an answer out.

It starts from Python 3.6 on, so that one that is too old for the rest is named in one line.
"""

import sys
from pathlib import Path

OLDEST = (3, 9)


def refusal(text: str) -> bytes:
    """Return an answer that refuses."""
    return b"".join(word + b"\0" for word in (b"refuse", b"", text.encode(), b"done", b"", b""))


def answer(document: bytes) -> bytes:
    """Return the answer, whatever is wrong here."""
    if sys.version_info < OLDEST:
        return refusal(
            f"the rewriting needs Python {OLDEST[0]}.{OLDEST[1]} or later, and {sys.executable} is "
            f"{sys.version_info[0]}.{sys.version_info[1]} (interpreter= of the plugstack line); "
            "tell your admin"
        )
    try:
        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
        from bftrainer_slurm.submission import plugin

        return plugin.main(document)
    except Exception as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return refusal(f"the submission was not rewritten ({what}); tell your admin")


if __name__ == "__main__":
    sys.stdout.buffer.write(answer(sys.stdin.buffer.read()))
