"""Fuzzing one target for a while: libFuzzer (or atheris, which is libFuzzer) in a child process.

Where there is no clang, inputs of targets in C are changed blindly. What breaks a target is kept in
a file.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fuzz.catalogue import Target

REPO = Path(__file__).resolve().parents[2]
SOURCES = REPO / "slurm_plugin"
BUILD = REPO / "build" / "fuzz"
CRASHES = BUILD / "crashes"
_RUNS = re.compile(r"^(?:#|stat::number_of_executed_units:\s+)(\d+)", re.MULTILINE)
_COVERED = re.compile(r"\bcov: (\d+)")
_A_ROUND = 50_000  # blind changes of a target in C between two looks at the clock
_SLOWEST_S = 20  # an input that takes longer is a crash too
_TOO_LATE_S = 600.0
# What parsers of texts may stumble over.
_PIECES = (
    *(b"=", b",", b":", b"-", b"0", b"9", b".", b" ", b"\n", b"(null)", b"9" * 21, b"\xff"),
    *(b"#SBATCH ", b"-N", b"%n"),
)
_UBSAN = "abort_on_error=1:print_stacktrace=1"  # a death that a handler hears of


class BuildError(Exception):
    """A target in C could not be built; the message is the compiler's."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. ``covered``: libFuzzer's count of edges, None where nothing guided.

    ``crash`` is the file with an input that breaks the target, ``said`` the last lines about it.
    """

    target: str
    executions: int
    seconds: float = 0.0
    covered: int | None = None
    crash: Path | None = None
    said: str = ""


def built(name: str) -> Path:
    """Build and return what slurm_plugin/Makefile has in its build folder under this name.

    Raises:
        BuildError: it cannot be built.
    """
    path = BUILD / name
    command = ["make", "-s", "-C", str(SOURCES), f"BUILD={path.parent}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(done.stderr.strip() or f"make: exit code {done.returncode}")
    return path


def fuzz(target: Target, seconds: float, seed: int) -> Outcome:
    """Fuzz a target.

    Raises:
        BuildError: a target in C cannot be built.
    """
    begun_s = time.monotonic()
    if target.module is not None:
        command = [sys.executable, "-m", "tests.fuzz.guided", target.name]
        outcome = _guided(target, command, seconds, seed)
    elif shutil.which("clang") is not None:
        command = [str(built(f"libfuzzer_{target.name}"))]
        outcome = _guided(target, command, seconds, seed)
    else:
        outcome = _blind(target, begun_s + seconds, seed)
    return replace(outcome, seconds=time.monotonic() - begun_s)


def replay_in_c(target: Target, inputs: list[bytes]) -> Outcome:
    """Run a target in C, built by any compiler, on inputs.

    Raises:
        BuildError: it cannot be built.
    """
    program = built(f"fuzz_{target.name}")
    with tempfile.TemporaryDirectory(prefix="bftrainer-fuzz-") as name:
        file, number = Path(name) / "inputs", Path(name) / "number"
        file.write_bytes(b"".join(struct.pack("=I", len(data)) + data for data in inputs))
        code, said = _run([str(program), str(file), str(number)], 0.0)
        return Outcome(
            target.name,
            len(inputs),
            crash=kept(target, inputs[int(number.read_text())]) if code else None,
            said="" if code == 0 else said[-3_000:] or f"exit code {code}",
        )


def changed(target: Target, changes: int, seed: int) -> Iterator[bytes]:
    """Draw changes of what is kept: up to four places, each with something else or nothing."""
    draw, inputs = random.Random(seed), target.corpus()
    pieces = [*_PIECES, *(word.encode("latin-1") for word in target.words)]
    for _ in range(changes):
        data = bytearray(draw.choice(inputs))
        for _ in range(draw.randint(1, 4)):
            other = draw.choice(inputs)
            rest = other[draw.randint(0, len(other)) :]
            at = draw.randint(0, len(data))
            end = draw.choice((at, at + 1, draw.randint(at, len(data))))
            data[at:end] = draw.choice((b"", draw.randbytes(1), draw.choice(pieces), rest))
        yield bytes(data[: target.longest])


def kept(target: Target, data: bytes) -> Path:
    """Keep an input that breaks a target; return its file."""
    path = CRASHES / f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _blind(target: Target, until_s: float, seed: int) -> Outcome:
    outcome, executions = Outcome(target.name, 0), 0
    while time.monotonic() < until_s and not outcome.said:
        outcome = replay_in_c(target, [*changed(target, _A_ROUND, seed + executions)])
        executions += outcome.executions
    return replace(outcome, executions=executions)


def _guided(target: Target, command: list[str], seconds: float, seed: int) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="bftrainer-fuzz-") as name:
        folder = Path(name)
        corpus, words = folder / "corpus", folder / "words"
        corpus.mkdir()
        for number, data in enumerate(target.corpus()):
            (corpus / str(number)).write_bytes(data)
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
        options = [f"-max_len={target.longest}", f"-timeout={_SLOWEST_S}", f"-dict={words}"]
        options += [f"-artifact_prefix={folder}/found-", "-print_final_stats=1"]
        options += [f"-max_total_time={max(1, round(seconds))}", f"-seed={seed + 1}"]
        code, said = _run([*command, *options, str(corpus)], seconds)
        return Outcome(
            target.name,
            max(map(int, _RUNS.findall(said)), default=0),
            covered=max(map(int, _COVERED.findall(said)), default=None),
            crash=next((kept(target, one.read_bytes()) for one in folder.glob("found-*")), None),
            said="" if code == 0 else "\n".join(said.splitlines()[-30:]) or f"exit code {code}",
        )


def _run(command: list[str], seconds: float) -> tuple[int, str]:
    """Run a child, which does not outlive us; return its exit code and what it said."""
    environment = os.environ | {"ASAN_OPTIONS": "abort_on_error=1", "UBSAN_OPTIONS": _UBSAN}
    try:
        done = subprocess.run(
            command,
            cwd=REPO,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds + _TOO_LATE_S,
        )
    except subprocess.TimeoutExpired:
        return 1, f"did not end within {seconds + _TOO_LATE_S:.0f} s"
    return done.returncode, done.stdout.decode("utf-8", "replace")


def _escaped(word: str) -> str:
    """Write a word as libFuzzer's dictionaries have it."""
    return "".join(
        char if 32 < ord(char) < 127 and char not in '"\\' else f"\\x{ord(char):02x}"
        for char in word
    )
