"""When the loop asks Slurm, whatever elements, submitters and strangers say meanwhile."""

from __future__ import annotations

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import BackfillPass, WaitingJob
from tests.controller.made_up_slurm import BACKFILL_S, MadeUpSlurm
from tests.controller.setting import Planner
from tests.controller.worlds import ARRAY, NOW_S, note, started


class Daemon:
    """A controller that turns whenever it is due, on a clock of tenths of a second."""

    def __init__(self, settings: Settings) -> None:
        self.slurm = MadeUpSlurm(NOW_S, ["n1", "n2"])
        self.slurm.submit_(ARRAY, 1, 2, "0000000a")
        about = (self.slurm, Planner(), History(":memory:"), lambda: self.slurm.now_s)
        self.controller = started(*about, settings)

    def hear(self, kind: NoteKind) -> None:
        self.controller.take([note(kind, self.slurm.now_s, array=4711)])

    def run(self, seconds: float) -> list[float]:
        """Let time pass; return when (seconds from now) it looked."""
        began_s, self.slurm.asked_ = self.slurm.now_s, []
        for tenth in range(1, round(10 * seconds) + 1):
            self.slurm.now_s = began_s + tenth / 10
            if self.controller.schedule.is_due(self.slurm.now_s):
                self.controller.turn()
                self.slurm.schedule()
        return [at_s - began_s for what, at_s in self.slurm.asked_ if what == "queue"]


def test_an_announced_job_is_seen_before_the_pass_that_may_serve_it() -> None:
    daemon = Daemon(Settings(queue_interval_s=60))
    daemon.run(70)
    job = WaitingJob(7, "bftrainer", 1, submit_s=daemon.slurm.now_s)
    passed_s = float(round(daemon.slurm.now_s))
    daemon.slurm.passed = BackfillPass(passed_s, active=False)
    daemon.slurm.waiting = {job.job_id: job}
    daemon.hear(NoteKind.SUBMITTED)
    daemon.run(1)  # it knows now when the next pass is ...
    daemon.slurm.waiting = {}
    daemon.hear(NoteKind.SUBMITTED)
    daemon.run(1)  # ... and that nobody waits for it
    daemon.hear(NoteKind.ANNOUNCED)
    next_s = passed_s + BACKFILL_S - daemon.slurm.now_s
    looks = daemon.run(next_s + 20)
    assert [one for one in looks if next_s - 6 < one < next_s - 1]
