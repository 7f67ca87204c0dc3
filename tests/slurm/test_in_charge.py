"""Where slurmctld is in charge, by what ``scontrol ping`` prints, on 22.05 as on 26.05."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer_slurm.slurm.gateway import SlurmUnavailableError
from bftrainer_slurm.slurm.in_charge import conf_for, in_charge, obeys, ping
from tests.slurm.conftest import runner


@pytest.mark.parametrize(
    ("states", "host"),
    [
        ({"c1": "UP"}, "c1"),
        ({"c1": "UP", "c2": "UP"}, "c1"),
        ({"c1": "UP", "c2": "DOWN"}, "c1"),
        ({"c1": "DOWN", "c2": "UP"}, "c2"),
        ({"c1": "DOWN", "c2": "UP", "c3": "UP"}, "c2"),
        ({"c1": "DOWN", "c2": "DOWN"}, None),
    ],
)
def test_it_is_in_charge_on_the_first_of_its_hosts_that_answers(
    tmp_path: Path, states: dict[str, str], host: str | None
) -> None:
    kinds = ("primary", "backup1", "backup2")
    says = [
        f"echo 'Slurmctld({kind}) at {name} is {state}'"
        for kind, (name, state) in zip(kinds, states.items(), strict=False)
    ]
    says.append("echo '** RESTORE SLURMCTLD DAEMON TO SERVICE **'")  # which only root is told
    hosts = ping(runner(tmp_path, scontrol="\n".join([*says, f"exit {int(host is None)}"])))
    assert hosts == {name: state == "UP" for name, state in states.items()}
    assert in_charge(hosts) == host


def test_without_an_answer_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SlurmUnavailableError):
        ping(runner(tmp_path, scontrol="echo 'Unable to contact slurm controller' >&2; exit 1"))


def test_one_that_stands_by_does_not_obey(tmp_path: Path) -> None:
    assert obeys(runner(tmp_path, scontrol="exit 0")) and not obeys(
        runner(tmp_path, scontrol="exit 1")
    )


def test_with_the_conf_for_a_host_commands_ask_it_alone_and_find_what_lies_beside(
    tmp_path: Path,
) -> None:
    etc, folder = tmp_path / "etc", tmp_path / "c2"
    etc.mkdir()
    (etc / "slurm.conf").write_text("SlurmctldHost=c1\nSlurmctldHost=c2\n")
    (etc / "slurm.key").write_text("key")
    for _ in range(2):  # each process writes it anew
        made = conf_for("c2", folder, str(etc / "slurm.conf"))
    assert made == str(folder / "slurm.conf")
    assert (folder / "slurm.key").read_text() == "key"
    lines = Path(made).read_text().splitlines()
    assert lines == [f"Include {etc / 'slurm.conf'}", "SlurmctldAddr=c2"]
    assert (etc / "slurm.conf").read_text().startswith("SlurmctldHost=c1")
    assert conf_for("c2", folder, "/nowhere/slurm.conf") == "/nowhere/slurm.conf"
