"""A batch task's connection to the keeper: says what it does, again after each connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.place import read_identity
from bftrainer_slurm.keeper.conversation import Conversation
from bftrainer_slurm.keeper.credentials import JOB_SECRET
from bftrainer_slurm.keeper.messages import Batch, FromKeeper, Role, Turn, Waits


class Meeting(Conversation):
    """Tells the keeper what this batch task does, and hears what it shall do."""

    longest_pause_s = 2.0

    def __init__(self, environment: Mapping[str, str]) -> None:
        identity = read_identity(environment, Role.BATCH)
        secret = environment.get(JOB_SECRET, "").encode()
        super().__init__(environment["BFTRAINER_KEEPER"], identity, secret)
        self._said = Batch("waits")
        self._stand(self._said)
        self._turn: Turn | None = None  # the newest since the last ``say``
        self.failed = 0  # the script's exit code, if it has ended badly while a step goes on here
        self.on_trains: Callable[[int], object] = lambda step: None
        self.stopped = threading.Event()  # the script has ended well without this step
        self.on_stop: Callable[[], object] = lambda: None
        self.start()

    def say(self, batch: Batch) -> None:
        """Say what this task does now; what it was told before holds no longer."""
        with self._state:
            if batch.doing != self._said.doing:
                self._turn = None
            if batch.doing == "steps":
                self.failed = 0
            self._said = batch
            self._stand(batch)

    def wait(self, timeout_s: float) -> Turn | None:
        """Return the newest turn, once; None: there was none in that time."""
        with self._state:
            self._state.wait_for(lambda: self._turn is not None, timeout_s)
            turn, self._turn = self._turn, None
            return turn

    def end(self, batch: Batch, timeout_s: float) -> None:
        """Say the last thing, if the keeper is there in that time."""
        self.say(batch)
        with self._state:
            self._state.wait_for(lambda: self.connected, timeout_s)
        self._stop()
        self._join_thread()

    @property
    def listens(self) -> bool:
        """Whether it still hears the keeper, or tries to."""
        return self._thread.is_alive()

    # In the conversation's thread.

    def _on_failure(self, error: Exception) -> None:
        """``listens`` says so."""

    def _on_message(self, message: FromKeeper) -> None:
        if isinstance(message, Waits):
            say(message.why)
        if not isinstance(message, Turn):
            return
        with self._state:
            said = self._said
            if message.do == "over" and said.doing == "steps":
                self.failed = message.code
            elif said.doing == "waits" and (self._turn is None or self._turn.do != "over"):
                self._turn = message  # an end is the last word, however soon another one follows
            self._state.notify_all()
        if message.do == "trains":
            self.on_trains(message.step)
        elif message.do == "stop":
            self.stopped.set()
            self.on_stop()
