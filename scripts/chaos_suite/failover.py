"""One failover after the other: the first host is killed, the second takes over, all is looked at.

Slurm's own answers and the trainers' logs say what became of the trainers; of our controller only
the host where it works is asked.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired

from scripts.benchkit.logs import last_lines
from scripts.chaos_suite.hosts import TwoHosts, started_hosts
from scripts.chaos_suite.trainers import SCRIPTS, Job, lay_out_scripts, submitted
from scripts.chaos_suite.training import doubled, in_order, losses, twins
from scripts.labcluster.cluster import CONTROL_HOSTS
from scripts.labcluster.lab import Tell
from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until

FIRST, SECOND = CONTROL_HOSTS
LIMIT_S = 60.0  # from the start of the second slurmctld until the trainers have grown
_NODES = 6
_TRAINERS = 4
_NAMES = [f"n{number}" for number in range(1, _NODES + 1)]
_SETTLE_S = 300.0
_SAVED_S = 12.0  # slurmctld writes down every few seconds what it has done
_TRAINS_S = 2.0  # who has made a step so lately trains
_PRIMARY = "Running as primary controller"


@dataclass(slots=True)
class Failover:
    """What became of one. Times in seconds."""

    second_s: float = 0.0  # from the kill to the start of the second slurmctld
    leads_s: float | None = None  # from there until our controller works on the second host
    grown_s: float | None = None  # until Slurm ran the elements that were to join
    trains_s: float | None = None  # until they trained with the others
    pause_s: float = 0.0  # the longest in which a trainer made no step, until our controller worked
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        words = [f"second slurmctld after {self.second_s:.1f} s"]
        times = (("leads", self.leads_s), ("grown", self.grown_s), ("trains", self.trains_s))
        for name, seconds in times:
            words.append(f"{name} -" if seconds is None else f"{name} {seconds:.1f} s later")
        words.append(f"longest pause {self.pause_s:.1f} s")
        return "; ".join([*words, *(self.violations or ["good"])])


@dataclass
class Trial:
    """The cluster with its trainers, between two failovers."""

    hosts: TwoHosts
    trainers: list[Job]
    blocker: int  # the ordinary job on the nodes that trainers do not have yet
    tell: Tell

    def fail_over(self) -> Failover:
        """Kill the first host, see what becomes of the trainers, and put all back in order."""
        found = Failover()
        self._settle()
        before = self._running()
        self.tell(f"killing {FIRST}: {_words(before)}")
        killed_s = time.monotonic()
        starts = self._starts_of(SECOND)
        self.hosts.kill(FIRST)

        def started() -> bool:
            found.pause_s = max(found.pause_s, self._pause_s())
            return self._starts_of(SECOND) > starts

        self._until(started, "the second slurmctld does not start")
        second_s = time.monotonic()
        found.second_s = second_s - killed_s
        self._cancel(self.blocker)
        self._follow(found, second_s)
        after = self._running()
        self.tell(f"{SECOND} has taken over: {_words(after)}")
        found.violations += self._check(before, after, killed_s, found)
        self._restore()
        self.blocker = block(self.hosts.site, self._second_nodes())
        return found

    def keep(self, folder: Path) -> None:
        """Keep the logs of all daemons, and of ours."""
        shutil.copytree(self.hosts.site.lab.dir / "log", folder, dirs_exist_ok=True)

    def _second_nodes(self) -> list[str]:
        """Return all nodes but one of each trainer.

        Any others might leave a trainer with none: a plan stops nobody who trains to let somebody
        train who gains no more by it.
        """
        first: dict[int, str] = {}
        for array, _, node in sorted(self._running()):
            first.setdefault(array, node)
        return [name for name in _NAMES if name not in first.values()]

    def _settle(self) -> None:
        """Wait until each trainer trains on one node."""

        def settled() -> bool:
            arrays = [place[0] for place in self._running()]
            alone = sorted(arrays) == sorted(one.array for one in self.trainers)
            return alone and self._worlds() == _TRAINERS and self._train()

        try:
            self._until(settled, "the trainers do not settle")
            self.hosts.wait(_SAVED_S)
            self._until(settled, "the trainers do not settle")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self._situation()}") from error

    def _situation(self) -> str:
        """Say what runs and who trains, for whoever reads that it is not as it has to be."""
        queue = self.hosts.site.run("squeue", "-r", "-o", "%i %T %r %N %M", check=False).stdout
        steps = [f"{one.array}: {one.training.newest}" for one in self.trainers]
        return "\n".join([queue, *steps, last_lines(self.hosts.log(FIRST), 30)])

    def _follow(self, found: Failover, second_s: float) -> None:
        """Note when what was to happen has happened, or that it was not in time."""

        def passed() -> float:
            return time.monotonic() - second_s

        def leads() -> bool:
            found.pause_s = max(found.pause_s, self._pause_s())
            return self.hosts.leader() == SECOND

        steps: dict[str, Callable[[], bool]] = {
            "leads_s": leads,
            "grown_s": lambda: len(self._running()) == _NODES,
            "trains_s": lambda: self._worlds() == _NODES and self._train(),
        }
        for name, condition in steps.items():
            try:
                self._until(condition, name, 2 * LIMIT_S)
            except TimeoutError:
                found.violations.append(f"{name} has not come")
                return
            setattr(found, name, passed())
        if found.trains_s is not None and found.trains_s > LIMIT_S:
            found.violations.append(f"grown only after {found.trains_s:.0f} s")

    def _check(self, before: Places, after: Places, killed_s: float, found: Failover) -> list[str]:
        wrong = []
        for place, start in before.items():
            if after.get(place) != start:
                wrong.append(f"{place} ran since {start}, and now {after.get(place)}")
        nodes = [node for _, _, node in after]
        wrong += [f"two elements on {node}" for node in set(nodes) if nodes.count(node) > 1]
        for one in self.trainers:
            states = set(self.hosts.site.lab.squeue(one.array, "%T"))
            if not states <= {"RUNNING", "PENDING"}:
                wrong.append(f"trainer {one.array} has elements that are {states}")
            generations = in_order(one.training.generations)
            wrong += twins(generations) + doubled(generations)
            wrong += [
                f"trainer {one.array} lost {loss.lost:g} steps"
                for loss in losses(generations, one.training.saves)
                if loss.time_s > killed_s and loss.lost > loss.allowed
            ]
        return wrong

    def _restore(self) -> None:
        """Switch the first host on again, and bring slurmctld and our services back to it."""
        starts = self._starts_of(FIRST)
        self.hosts.revive(FIRST)
        self._until(lambda: self._starts_of(FIRST) > starts, "the first slurmctld does not start")
        self.hosts.stop(SECOND)
        self._until(lambda: self.hosts.leader() == FIRST, "the first host does not lead again")
        self.hosts.start(SECOND)

    def _running(self) -> Places:
        try:
            done = self.hosts.site.run(
                *("squeue", "-h", "-r", "-t", "R", "-p", "bftrainer", "-o", "%F %K %N %S"),
                check=False,
                timeout_s=30,
            )
        except TimeoutExpired:
            return {}
        lines = (line.split() for line in done.stdout.splitlines())
        return {(int(array), task, node): start for array, task, node, start in lines}

    def _train(self) -> bool:
        """Whether all trainers have made steps lately."""
        return self._pause_s() < _TRAINS_S

    def _pause_s(self) -> float:
        """For how long one of them has made none."""
        newest = [one.training.newest for one in self.trainers]
        return time.monotonic() - min(0.0 if one is None else one.last_s for one in newest)

    def _worlds(self) -> int:
        """How many nodes train, all trainers together."""
        newest = [one.training.newest for one in self.trainers]
        return sum(one.world for one in newest if one is not None)

    def _starts_of(self, host: str) -> int:
        log = self.hosts.site.lab.dir / "log" / f"slurmctld-{host}.log"
        return log.read_text(errors="replace").count(_PRIMARY) if log.exists() else 0

    def _cancel(self, job: int) -> None:
        # A slurmctld that has just started may not answer yet.
        self._until(
            lambda: self.hosts.site.run("scancel", str(job), check=False).returncode == 0,
            "scancel fails",
        )

    def _until(
        self, condition: Callable[[], bool], otherwise: str, timeout_s: float = _SETTLE_S
    ) -> None:
        def look() -> bool:
            for one in self.trainers:
                one.training.read()
            return condition()

        wait_until(look, timeout_s, otherwise, lambda _: self.hosts.wait(0.3))


Places = dict[tuple[int, str, str], str]  # array, task and node of what runs, and since when


def _words(places: Places) -> str:
    return ", ".join(f"{array}_{task} on {node}" for array, task, node in sorted(places))


def run_failovers(runs: int, kept: Path, tell: Tell) -> list[Failover]:
    """Let the first host fail so often; needs root. The logs of what went wrong are kept.

    Raises:
        TimeoutError: all was not in order again in time.
    """
    found: list[Failover] = []
    with started_trial(tell) as trial:
        for number in range(1, runs + 1):
            try:
                found.append(trial.fail_over())
            except TimeoutError:
                trial.keep(kept / f"failover-{number}")
                raise
            tell(f"{number}: {found[-1]}")
            if found[-1].violations:
                trial.keep(kept / f"failover-{number}")
        tell(f"slurmctld ended by itself {trial.hosts.ended} times")
    return found


@contextmanager
def started_trial(tell: Tell) -> Iterator[Trial]:
    """Start a cluster with two control hosts, and trainers on it; needs root."""
    with started_hosts(_NODES, tell) as hosts:
        site = hosts.site
        lay_out_scripts(site)
        blocker, others = block(site, _NAMES[_TRAINERS:]), block(site, _NAMES[:_TRAINERS])
        kinds = list(SCRIPTS) * (_TRAINERS // len(SCRIPTS))
        trainers = [submitted(site, kind, f"{kind}-{at}") for at, kind in enumerate(kinds)]
        wait_until(lambda: len(hosts.status()["trainers"]) == _TRAINERS, pause=hosts.wait)
        site.lab.run("scancel", str(others))
        yield Trial(hosts, trainers, blocker, tell)


def block(site: Site, nodes: Sequence[str]) -> int:
    """Let an ordinary job have these nodes; return its id."""
    words = ("-w", ",".join(nodes), f"-N{len(nodes)}", "--exclusive", "-t", "60", "-J", "ordinary")
    return site.lab.sbatch(*words, "-o", "/dev/null", script="#!/bin/sh\nsleep 3600\n")
