"""The command line of ``scripts/run bench-elastic``: what is measured, and how often."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.benchkit.command import Findings, bench_command, findings, number, progress, several
from scripts.benchkit.machine import this_machine
from scripts.elastic_bench import forming, report
from scripts.elastic_bench.fleet import SETUPS, Training
from scripts.elastic_bench.measure import NotSettledError, measure

# In each step the processor is idle for so long, as if an accelerator did the work.
_COMPUTE_S = 0.02
# Seconds between the unchanged script's checkpoints: a small one costs next to nothing.
_TRAININGS = {
    name: Training(name, _COMPUTE_S, every_s) for name, every_s in (("tiny", 0.0), ("large", 10.0))
}


@bench_command(NotSettledError, TimeoutError)
@several("--model", "models", _TRAININGS, "9,610 parameters, or 25 million.", ["tiny"])
@several("--setup", "names", SETUPS, "Measure only this one.")
@several("--group", "sizes", forming.SIZES, "Processes of a group that gloo forms.")
@several("--part", "parts", ("pauses", "groups"), "Measure only this.")
@number(
    "--repeat",
    *(10, 1, 1000),
    "How often a node is killed, leaves and is reclaimed (one joins each time), or a group forms.",
)
def main(
    models: Sequence[str],
    names: Sequence[str],
    sizes: Sequence[str],
    parts: Sequence[str],
    repeat: int,
) -> Findings:
    """Measure how long trainers stand still as nodes come and go, on this machine.

    Four nodes, each a torchrun agent with one training process, on gloo. Stock c10d as an element
    tunes it, and our rendezvous handler with the same script. Then how long gloo takes to form a
    group, by its size.

    \b
    Examples:
      scripts/run bench-elastic --repeat 3 --setup handler
      scripts/run bench-elastic --model large
      scripts/run bench-elastic --part groups --group 8 --group 64
    """
    machine = this_machine("mip", "torch")
    pauses = {}
    for model in models if "pauses" in parts else ():
        pauses[model] = [
            measure(SETUPS[name], _TRAININGS[model], repeat, progress(f"{model} model, {name}: "))
            for name in names
        ]
    groups, tell = {}, progress()
    for size in sizes if "groups" in parts else ():
        tell(f"a group of {size} processes")
        groups[size] = forming.measure(int(size), repeat)
    tables = [report.pauses(model, found) for model, found in pauses.items()]
    if groups:
        tables.append(forming.formed(groups))
    targets = [one for model, found in pauses.items() for one in report.targets(model, found)]
    return findings(machine, *tables, targets=targets, pauses=pauses, groups=groups)
