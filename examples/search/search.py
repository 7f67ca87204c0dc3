"""Searches hyper-parameters with Optuna; each trial is a trainer of its own.

Run it where sbatch works, in a folder that the nodes see. It submits trials, waits for their
results and asks Optuna for the next ones. All that it knows is in the journal: after Ctrl-C the
same command goes on where it stopped, and the trainers train meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState


def main() -> None:
    """Search until --trials have ended, then print the best one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("search"), help="for all that it writes"
    )
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--at-once", type=int, default=10, help="trainers side by side")
    parser.add_argument("--script", type=Path, default=Path("train.sh"), help="trains one trial")
    parser.add_argument("--every-s", type=float, default=10.0, help="between looks for results")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(folder / "journal"))),
        study_name="digits",
        direction="maximize",
        load_if_exists=True,
    )
    try:
        while not search(study, folder, arguments):
            time.sleep(arguments.every_s)
    except KeyboardInterrupt:
        sys.exit("the trainers go on; the same command takes them up again, scancel ends them")
    ended = [one for one in study.trials if one.state == TrialState.COMPLETE]
    print(f"{len(ended)} of {len(study.trials)} trials have a result")
    if ended:
        print(f"best: trial {study.best_trial.number}, {study.best_value:.3f}, {study.best_params}")


def search(study: optuna.Study, folder: Path, arguments: argparse.Namespace) -> bool:
    """Take the results that there are, submit what is to come; return whether all have ended."""
    alive = living_trainers()  # asked before the results: one may come meanwhile
    if alive is None:
        return False
    for trial in study.get_trials(states=[TrialState.RUNNING]):
        take_result(study, trial, folder, alive)
    running = study.get_trials(states=[TrialState.RUNNING])
    begun = len(study.trials)
    for _ in range(min(arguments.trials - begun, arguments.at_once - len(running))):
        submit(study.ask(), folder, arguments.script)
    return begun >= arguments.trials and not running


def submit(trial: optuna.Trial, folder: Path, script: Path) -> None:
    """Submit a trial as a trainer of its own."""
    own = folder / f"trial-{trial.number}"
    own.mkdir(exist_ok=True)
    rate = trial.suggest_float("rate", 1e-4, 1e-1, log=True)
    width = trial.suggest_int("width", 8, 256, log=True)
    said = [f"--folder={own}", f"--rate={rate}", f"--width={width}"]
    options = ["--parsable", f"--job-name=trial-{trial.number}", f"--output={own}/%a.out"]
    answer = subprocess.run(
        ["sbatch", *options, str(script), *said], stdout=subprocess.PIPE, text=True
    )
    if answer.returncode != 0:
        sys.exit("sbatch refused; nothing else is submitted")
    job = answer.stdout.strip().partition(";")[0]
    trial.set_user_attr("job", job)
    print(f"trial {trial.number}: trainer {job}, rate {rate:.2g}, width {width}", flush=True)


def take_result(study: optuna.Study, trial: FrozenTrial, folder: Path, alive: set[str]) -> None:
    """Tell Optuna how a trial ended, if it has."""
    result = folder / f"trial-{trial.number}" / "result.json"
    if result.exists():
        accuracy = json.loads(result.read_text())["accuracy"]
        study.tell(trial.number, accuracy)
        print(f"trial {trial.number}: test accuracy {accuracy:.3f}", flush=True)
    elif trial.user_attrs.get("job") not in alive:
        study.tell(trial.number, state=TrialState.FAIL)
        print(f"trial {trial.number}: ended without a result", flush=True)


def living_trainers() -> set[str] | None:
    """Return the job ids of trainers that may still train; None: Slurm cannot say now."""
    command = ["squeue", "--me", "--noheader", "--format=%F"]
    answer = subprocess.run(command, capture_output=True, text=True)
    return set(answer.stdout.split()) if answer.returncode == 0 else None


if __name__ == "__main__":
    main()
