"""An element's batch task: runs the script, or the step that runs on the trainer's others.

It runs the script only when the keeper says so: the script could remove what other nodes train on.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bftrainer_slurm.elastic.batch.inherited import Inherited
from bftrainer_slurm.elastic.batch.meeting import Meeting
from bftrainer_slurm.elastic.batch.steps import RECLAIM_S, STEP, Steps, unpacked
from bftrainer_slurm.elastic.log import WAITS, say
from bftrainer_slurm.keeper.messages import MAX_STEPS, Batch, Step, Turn

PATIENCE_S = 10.0  # without a word from the keeper, until the output says so
FAILED_S = 10.0  # the script has so long to end, if a step of it has failed here and elsewhere
SAY_S = 2.0  # to say goodbye
_KEPT = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGCONT, signal.SIGPIPE),
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP),
}

_ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}


def main(command: Sequence[str], environment: dict[str, str]) -> NoReturn:
    """Run the script, or steps of it, and end as it does."""
    for number in _signals() - _ENDING:
        signal.signal(number, lambda number, frame: None)  # for a script, which does not run here
    meeting = Meeting(environment)
    done: list[Step] = []
    failed = 0
    while True:
        turn = next_turn(meeting, done, failed)
        if turn.do == "over":
            _end(turn.code)
        if turn.do == "again":
            done, failed = [one for one in done if one[1] == 0], 0
        elif turn.do == "join":
            failed = _join(environment, meeting, turn, done)
            del done[:-MAX_STEPS]
        else:
            _lead(command, environment, meeting, turn.done)
        meeting.say(Batch("waits", done=tuple(done)))


def next_turn(meeting: Meeting, done: Sequence[Step], failed: int) -> Turn:
    """Return what to do next, however long nobody says it.

    ``failed``: the exit code of this node's last step, if it has failed.
    """
    through = {number for number, _, _ in done}
    waits = silent = False
    began_s = time.monotonic()
    while True:
        if failed and meeting.failed:
            return Turn("over", code=meeting.failed)
        turn = meeting.wait(0.5)
        spent_s = time.monotonic() - began_s
        if failed and waits and spent_s > FAILED_S:
            return Turn("over", code=failed)
        if turn is None:
            if not meeting.listens:
                say("this node cannot hear the keeper any more, and ends")
                return Turn("over", code=os.EX_SOFTWARE)
            if not waits and not silent and spent_s > PATIENCE_S:
                say("the keeper does not say whether the script runs elsewhere; waiting for it")
                silent = True
        elif turn.do == "wait":
            if not waits and not done:
                say(WAITS)
            waits = True
        elif turn.do != "join" or turn.step not in through:
            if turn.do == "each":
                say("this script trains without srun: all of it runs on each node")
            return turn


def _lead(
    command: Sequence[str], environment: dict[str, str], meeting: Meeting, done: Sequence[Step]
) -> NoReturn:
    """Run the script."""
    steps = Steps(environment, done, meeting.say)
    meeting.on_trains = steps.trains
    steps.tell()
    with _forwarded(_signals(), steps.reclaimed.set) as forward:
        child = subprocess.Popen(command, env=environment)
        forward(child.pid)
        code = child.wait()
    try:
        if not steps.reclaimed.is_set() and code >= 0:
            if code or time.monotonic() - steps.failed_s < RECLAIM_S:
                time.sleep(RECLAIM_S)  # a reclaim, which may have killed it, would end us here
            meeting.end(Batch("over", code=code), SAY_S)
    finally:
        _end(code)


def _join(environment: dict[str, str], meeting: Meeting, turn: Turn, done: list[Step]) -> int:
    """Run a step that runs elsewhere here too; return its exit code."""
    step = unpacked(turn.what)
    words = step.words_here(environment)
    environment = step.environment_here(environment) | {STEP: str(turn.step)}
    folder = step.folder if Path(step.folder).is_dir() else None
    meeting.say(Batch("steps", turn.step, turn.what, tuple(done)))
    say(
        f"this node takes part in step {turn.step} of the script that runs on {step.node}; what "
        "else the script does is done there alone (--bftrainer=batch=each: on each node)"
    )
    with _forwarded(_ENDING, lambda: None) as forward:
        child = _started(words, environment, folder, step.inherited)
        forward(child.pid)
        meeting.on_stop = child.terminate
        if meeting.stopped.is_set():
            child.terminate()
        code = child.wait()
    if meeting.stopped.is_set():
        say(f"the script on {step.node} has ended well, and this step with it")
    elif code:
        time.sleep(RECLAIM_S)  # a reclaim, which may have killed it, ends us here
    if code < 0:
        code = 128 - code
    done.append((turn.step, code, step.mark))
    return code


def _started(
    words: Sequence[str], environment: dict[str, str], folder: str | None, inherited: Inherited
) -> subprocess.Popen[bytes]:
    """Start an srun with what the other node's one has from its script."""
    stdin = inherited.open_stdin()
    before = inherited.take_limits()
    try:
        return subprocess.Popen(
            words, env=environment, cwd=folder, stdin=stdin, umask=inherited.umask
        )
    finally:
        for number, limits in before.items():
            resource.setrlimit(number, limits)
        os.close(stdin)


def _signals() -> set[int]:
    return {one for one in signal.valid_signals() - _KEPT if signal.getsignal(one) is not None}


@contextlib.contextmanager
def _forwarded(
    signals: Collection[int], reclaimed: Callable[[], object]
) -> Iterator[Callable[[int], None]]:
    """Pass signals on to the process that is named to what this yields."""
    heard: list[int] = []
    child: list[int] = []

    def forward(number: int, frame: FrameType | None = None) -> None:
        if number == signal.SIGTERM:
            reclaimed()
        heard.append(number)
        if child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child[0], number)

    def begin(pid: int) -> None:
        child.append(pid)
        for number in heard[:]:
            forward(number)

    before = {one: signal.signal(one, forward) for one in signals}
    try:
        yield begin
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(code: int) -> NoReturn:
    """End as the script did; ``code`` is negative for a signal."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):  # one that cannot be handled
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        code = 128 - code
    os._exit(code)
