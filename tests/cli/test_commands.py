"""What users see of the commands where nothing answers, or where the input is bad."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import bftrainer_slurm
from bftrainer_slurm.cli import main
from bftrainer_slurm.cli.chart import curve
from bftrainer_slurm.cli.common import fail_if_unreadable, safe_lines
from bftrainer_slurm.cli.controller import oserror_message
from bftrainer_slurm.cli.show import lines as lines_of_trainer
from bftrainer_slurm.cli.status import status_lines
from bftrainer_slurm.controller.state.trainer_state import BATCH_SCRIPT
from bftrainer_slurm.reader.sentences import reasons

TRAINER = {
    "array": 12,
    "name": "digits",
    "user": "alice",
    "state": "running",
    "nodes": ["n1", "n2"],
    "starting": ["n3"],
    "min_nodes": 1,
    "max_nodes": 4,
    "samples": 81_234.0,
    "samples_per_s": 1_234.5,
    "grew": 3,
    "shrank": 0,
    "reclaimed": 1,
}
ON_TIME: dict[str, object] = {
    "state": "on time",
    "needs": 1_200.0,
    "late_s": None,
    "nodes": 2,
    "nodes_left": None,
}
SHOWN = TRAINER | {
    "why": None,
    "submit_s": 0.0,
    "weight": 1.0,
    "grace_s": 0.5,
    "node_hours": None,
    "wanted_samples": 2_000_000.0,
    "by_s": 1_796_112_000.0,
    "deadline": ON_TIME,
    "start_minutes": None,
    "sizes": [],
    "step": 1,
    "partitions": [],
    "node_list": "",
    "node_s": 7200.0,
    "measures": {"loss": 0.25},
    "launcher": "srun python",
    "rescale": {"up": {"seconds": 0.12, "count": 4}, "down": {"seconds": 0.3, "count": 0}},
    "curve": {
        "unit": "samples",
        "points": [
            {"nodes": 1, "rate": 410.0, "measured": False},
            {"nodes": 2, "rate": 800.0, "measured": True},
            {"nodes": 4, "rate": 1500.0, "measured": False},
        ],
    },
    "failures": 0,
    "failed_on": [],
    "error": None,
    "refused_reports": 0,
}
DOCUMENT = {
    "down": None,
    "controller": {"error": None},
    "pool": {
        "nodes": 5,
        "used": 3,
        "starting": 0,
        "planned": 3,
        "free": ["n4", "n5"],
        "gpus": None,
    },
    "malformed": {},
    "trainers": [TRAINER],
}


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No slurmctld, no controller, a home of one's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=9\nNodeName=n1\n"
        "MessageTimeout=1\n"
    )
    monkeypatch.setenv("SLURM_CONF", str(conf))
    for name in ("BFTRAINER_STATE", "BFTRAINER_KEEPER", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


def render(document: dict[str, Any]) -> str:
    return "\n".join(status_lines(document))


def render_trainer(one: dict[str, Any]) -> str:
    return "\n".join(lines_of_trainer(one))


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def script(folder: Path, text: str = "#!/bin/sh\nsrun torchrun train.py\n") -> str:
    path = folder / "train.sh"
    path.write_text(text)
    return str(path)


def test_every_command_has_help_with_what_it_does() -> None:
    listed = call("--help").output
    for command in ("submit", "status", "show", "plan", "controller", "keeper"):
        assert command in listed
        assert call(command, "--help").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("statsu",), "No such command 'statsu'. Did you mean 'status'? See 'main --help'"),
        (("nonsense",), "main: No such command 'nonsense'; see 'main --help'"),
        (("--nonsense",), "main: No such option '--nonsense'; see 'main --help'"),
        (("show",), "main show: Missing argument 'TRAINER'; see 'main show --help'"),
        (("logs", "7", "-n", "-1"), "'-n' / '--lines': -1 is not in the range x>=0; see"),
        (("status", "--keeper", "nowhere"), "'--keeper': 'nowhere' is not HOST:PORT; see"),
    ],
)
def test_bad_usage_is_one_line_that_names_the_option_and_the_help(
    arguments: tuple[str, ...], said: str
) -> None:
    result = call(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


EVIL = "\x1b[2Jev\x9bil\u202e\udcff"
HOSTILE_ARGUMENTS = [
    (EVIL,),
    (f"--{EVIL}",),
    ("show", EVIL),
    ("logs", EVIL),
    ("history", EVIL),
    ("history", "--since", EVIL),
    ("explain", EVIL),
    ("status", "--keeper", EVIL),
    ("submit", "-N", "1-2", "-p", "p", EVIL),
    ("submit", "-N", EVIL, "-p", "p", "SCRIPT"),
    ("plan", EVIL),
    ("plan", "--from-history", "1", "--state", EVIL),
    ("plan", "--from-history", "1", "--state", "x" * 300),
    ("explain", "5", "--state", "x" * 300),
    ("history", "--state", "x" * 300),
    ("status", "--state", "x" * 300),
    ("controller", "--partition", "p", "--state", "x" * 300),
    ("replay", "--synthetic", EVIL),
    ("replay", "--events", EVIL),
    ("replay", "--synthetic", "5", "--trainers", EVIL),
    ("replay", "--synthetic", "5", "--objective", EVIL),
    ("assess", EVIL),
    ("assess", "--synthetic", EVIL),
    ("assess", "--synthetic", "5", "--csv", f"{EVIL}/no"),
    ("assess", "--time-zone", EVIL),
    ("controller", "--config", EVIL),
    ("keeper", "--listen", EVIL),
    ("doctor", "--config", EVIL),
]


@pytest.mark.parametrize("arguments", HOSTILE_ARGUMENTS, ids=lambda words: words[0][:8])
def test_an_error_never_sends_control_characters_to_a_terminal(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    path = script(tmp_path)
    result = call(*(path if word == "SCRIPT" else word for word in arguments))
    assert result.exit_code in (2, 3)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.strip("\n").isprintable()


@pytest.mark.parametrize("words", ["--help", "plan --help", "controller --example"])
def test_a_full_disk_at_standard_output_is_said_in_a_line(words: str) -> None:
    command = [sys.executable, "-m", "bftrainer_slurm", *words.split()]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert result.stderr == "bftrainer: standard output: No space left on device\n"


def test_a_full_disk_is_not_taken_for_a_status_of_another_version() -> None:
    with pytest.raises(OSError, match="full"), fail_if_unreadable():
        raise OSError(errno.ENOSPC, "full")


def test_ctrl_c_ends_a_command_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bftrainer_slurm.cli.status.current_status", interrupted)
    result = call("status")
    assert (result.exit_code, result.output.strip()) == (130, "")


def test_the_table_shows_a_trainer_in_a_line() -> None:
    lines = render(DOCUMENT).splitlines()
    assert lines[0] == "Trainers run on 3 of the 5 nodes without ordinary jobs."
    assert lines[2].split() == (
        ["12", "digits", "alice", "running", "2+1", "1-4", "81,234", "1,234", "3", "0", "1"]
    )


@pytest.mark.parametrize(
    ("part", "said"),
    [({"gpus": 2}, "2+1 (4 GPUs)"), ({"gpus": 0}, "2+1  ")],
)
def test_beside_its_nodes_stands_how_much_it_has_of_them(part: dict[str, int], said: str) -> None:
    assert f"  {said}  " in render(DOCUMENT | {"trainers": [SHOWN | part]})


def test_what_a_trainer_should_know_is_said_below_the_table_and_in_show() -> None:
    notice = "n2, n3 run, but none has joined"
    document = DOCUMENT | {
        "trainers": [TRAINER | {"notice": notice}, TRAINER | {"why": "it failed"}]
    }
    assert render(document).splitlines()[-2:] == [
        "trainer 12: n2, n3 run, but none has joined",
        "trainer 12: it failed",
    ]
    assert f"notice      {notice}" in render_trainer(SHOWN | {"notice": notice})


def test_so_are_the_sizes_that_it_does_without_and_why() -> None:
    left_out = {"left_out": "3 nodes, where its script fails: AssertionError: not on 3 nodes"}
    last = render(DOCUMENT | {"trainers": [TRAINER | left_out]}).splitlines()[-1]
    assert last == f"trainer 12: left out: {left_out['left_out']}"
    assert f"left out    {left_out['left_out']}" in render_trainer(SHOWN | left_out)


@pytest.mark.parametrize(
    ("state", "late_s", "said"),
    [
        ("on time", None, "needs 1,200 samples/s until {by} and has 1,234: on time"),
        ("late", 10_800.0, "needs 1,200 samples/s until {by} and has 1,234: late by 3.0 h"),
        (
            "cannot be met",
            10_800.0,
            "late by 3.0 h; no number of its nodes is enough",
        ),
        ("not known", None, "2,000,000 samples by {by}: its samples/s are not known yet"),
        ("passed", None, "2,000,000 samples by {by}: that is over"),
        ("done", None, "2,000,000 samples by {by}: all are trained"),
    ],
)
def test_a_deadline_is_told_in_show_and_below_the_table_if_it_is_not_met(
    state: str, late_s: float | None, said: str
) -> None:
    by = time.strftime("%Y-%m-%d %H:%M", time.localtime(1_796_112_000))
    about = {"state": state, "needs": 1_200.0, "late_s": late_s}
    one = SHOWN | {"deadline": ON_TIME | about}
    assert said.format(by=by) in render_trainer(one)
    below = "trainer 12: " in render(DOCUMENT | {"trainers": [one]})
    assert below == (state not in ("on time", "done"))


@pytest.mark.parametrize("state", ["on time", "late", "not known"])
@pytest.mark.parametrize(
    ("left", "gpus", "said"),
    [
        (3, 0, "; that takes 5 nodes, and deadlines may have only 3 more (deadline_share)"),
        (0, 2, "; that takes 10 GPUs, and deadlines may have no more (deadline_share)"),
    ],
)
def test_a_deadline_that_the_sites_share_has_no_room_for_is_told_everywhere(
    state: str, left: int, gpus: int, said: str
) -> None:
    about = {"state": state, "nodes": 5, "nodes_left": left}
    one = SHOWN | {"deadline": ON_TIME | about, "gpus": gpus}
    said += ", so it counts as without one"
    below = render(DOCUMENT | {"trainers": [one]}).splitlines()[-1]
    assert below.startswith("trainer 12: ")
    assert all(said in text for text in (below, render_trainer(one), reasons(one, DOCUMENT)[0]))


@pytest.mark.parametrize(
    ("count", "said"), [(1, "2 nodes on 1 switch"), (2, "2 nodes on 2 switches")]
)
def test_under_how_many_switches_a_trainer_is(count: int, said: str) -> None:
    assert f"switches    {said}\n" in render_trainer(SHOWN | {"switches": count}) + "\n"
    assert "switches" not in render_trainer(SHOWN | {"switches": 0})


def test_many_trainers_in_trouble_do_not_fill_the_screen() -> None:
    lines = render(DOCUMENT | {"trainers": [TRAINER | {"why": "it failed"}] * 8}).splitlines()
    assert lines[-1] == "3 more trainers have problems: see 'bftrainer show TRAINER'"
    assert len(lines) == 2 + 8 + 5 + 1


def test_the_status_says_what_ordinary_jobs_felt() -> None:
    felt = {"started": 2412, "jobs": 3, "late_jobs": 1, "delay_median_s": 0.0, "delay_max_s": 31.0}
    assert render(DOCUMENT | {"preempted": felt}).splitlines()[1] == (
        "ordinary jobs, last 24 h: 2,412 started, 3 waited for trainers, less than 1 s (median; "
        "31 s at most); 1 missed a backfill pass"
    )
    none = render(DOCUMENT | {"preempted": {"jobs": 0}}).splitlines()[1]
    assert none == "ordinary jobs, last 24 h: none waited for trainers"


def test_a_hostile_name_cannot_write_to_the_terminal() -> None:
    hostile = TRAINER | {"name": "\x1b[2Jevil\n12 forged"}
    shown = render(DOCUMENT | {"trainers": [hostile]})
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 3


def test_show_has_the_curve_as_numbers_and_as_bars() -> None:
    lines = render_trainer(SHOWN).splitlines()
    (above,) = [at for at, line in enumerate(lines) if line.endswith("# measured, o expected")]
    assert lines[above].split()[:2] == ["nodes", "samples/s"]
    rows = [line.split() for line in lines[above + 1 : above + 4]]
    assert [row[:2] for row in rows] == [["1", "410"], ["2", "800"], ["4", "1,500"]]
    assert [set(row[2]) for row in rows] == [{"o"}, {"#"}, {"o"}]
    assert len(rows[0][2]) < len(rows[1][2]) < len(rows[2][2])


def test_an_owner_is_shown_the_link_to_the_page() -> None:
    link = "http://127.0.0.1:6741/#trainer=12&key=alice.5f0c"
    assert f"\npage        {link}" in render_trainer(SHOWN | {"page": link})


def test_show_says_what_changes_of_size_cost_and_how_that_is_known() -> None:
    shown = render_trainer(SHOWN)
    assert "\nlauncher    srun python\n" in shown
    assert "rescaling   up 0.12 s (4 measured), down 0.30 s (assumed)" in shown


def test_a_curve_without_samples_is_said_to_be_relative() -> None:
    by_steps = {"unit": "steps", "points": SHOWN["curve"]["points"]}  # type: ignore[index]
    assert "nodes    relative  # measured" in render_trainer(SHOWN | {"curve": by_steps})


def test_a_curve_of_which_nothing_was_measured_is_not_shown() -> None:
    points = [{"nodes": nodes, "rate": 1.0, "measured": False} for nodes in (1, 2)]
    assert "speed-up" not in render_trainer(SHOWN | {"curve": {"unit": None, "points": points}})


def test_trouble_comes_first_with_what_to_do_about_it() -> None:
    error = "Traceback\nModuleNotFoundError: No module named 'einops'"
    failed = TRAINER | {"notice": "failed 3 times in a row on n1", "error": error}
    assert render(DOCUMENT | {"trainers": [failed]}).splitlines()[-3:] == [
        "trainer 12: failed 3 times in a row on n1",
        "  its last output: ModuleNotFoundError: No module named 'einops'",
        "  try: install einops in the Python environment that the script activates, and keep it in "
        "a folder that all nodes see",
    ]
    lines = render_trainer(SHOWN | failed).splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["notice", "try"]


def test_idle_nodes_that_no_trainer_may_have_are_counted() -> None:
    line = render(DOCUMENT | {"left_alone": {"reserved": 2, "failed there": 1}}).splitlines()[0]
    assert line.endswith("ordinary jobs. Idle, but left alone: 2 (reserved), 1 (failed there).")


def test_show_has_the_last_lines_of_a_failed_trainer_safe_for_the_terminal() -> None:
    error = "\n".join(f"line {number}" for number in range(50)) + "\n\x1b[2Jboom \u202e"
    failed = SHOWN | {"state": "given up", "why": "failed 3 times\x07", "error": error}
    shown = render_trainer(failed)
    assert "state       given up: failed 3 times?" in shown
    assert shown.splitlines()[-1] == "  ?[2Jboom ?"
    assert "line 48" in shown
    assert "line 8" not in shown
    assert "\x1b" not in shown


def test_of_a_failed_batch_script_show_has_the_end_of_its_output_and_where_that_lies() -> None:
    output = {
        "path": "/home/alice/12_0.out",
        "lines": ["starting", "venv/bin/activate: no such file"],
    }
    shown = render_trainer(SHOWN | {"error": BATCH_SCRIPT, "output": output})
    assert "output      /home/alice/12_0.out" in shown
    assert shown.splitlines()[-3:] == [
        "its last output:",
        "  starting",
        "  venv/bin/activate: no such file",
    ]


def test_what_a_member_has_told_of_its_failure_says_more_than_the_output() -> None:
    output = {"path": "/home/alice/12_0.out", "lines": ["srun: error: exit 1"]}
    shown = render_trainer(SHOWN | {"error": "ImportError: no toch", "output": output})
    assert shown.splitlines()[-1] == "  ImportError: no toch"


@pytest.mark.parametrize(
    ("spent", "line"),
    [
        (
            (3600.0, 59.94, 12.3, 387.7, 4000.0, 240.0),
            "trained 60 min, waiting 60 s, rescaling 12 s, lost 6 min\n"
            "goodput     90% of the time with nodes: 6% trained again, 4% starts and restarts",
        ),
        ((None, 30.0, None, None, 7325.0, None), "waiting 30 s, with nodes 2.0 h"),
        (
            (0.0, 30.0, 0.0, 0.0, 0.0, 0.0),
            "trained 0 s, waiting 30 s, rescaling 0 s, lost 0 s",
        ),
    ],
)
def test_show_says_where_a_trainers_time_went(spent: tuple[float | None, ...], line: str) -> None:
    names = ("trained_s", "waiting_s", "rescaling_s", "lost_s", "with_nodes_s", "again_s")
    shown = render_trainer(SHOWN | {"goodput": dict(zip(names, spent, strict=True))})
    assert f"\ntime        {line}\n" in shown
    assert ("goodput" in shown) == ("goodput" in line)


def test_show_works_with_what_slurm_alone_knows() -> None:
    names = ("array", "name", "user", "state", "nodes", "starting", "min_nodes", "max_nodes")
    known = {name: SHOWN[name] for name in (*names, "submit_s", "weight", "grace_s")}
    assert "1 to 4 nodes" in render_trainer(known)


@pytest.mark.parametrize("sizes", [1, 2, 10, 40])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e12])
def test_a_curve_fits_a_terminal(sizes: int, unit: float) -> None:
    points = [
        {"nodes": 2 * n + 1, "rate": unit * (n + 1), "measured": n % 3 == 0} for n in range(sizes)
    ]
    lines = curve(points, "samples/s")
    assert len(lines) == 1 + min(8, sizes)
    assert all(len(line) <= 90 and line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("changes", "at", "line"),
    [
        ({"controller": {"error": "no answer"}}, 0, "trouble: no answer"),
        ({"controller": {"error": None, "history": "disk full"}}, 0, "trouble: disk full"),
        (
            {"keeper": {"refused": {"not_owner": 2, "bad_proof": 1}}},
            *(-1, "the keeper refused: bad_proof 1, not_owner 2"),
        ),
    ],
)
def test_trouble_is_shown_first_and_refused_members_last(
    changes: dict[str, Any], at: int, line: str
) -> None:
    assert render(DOCUMENT | changes).splitlines()[at] == line


NEED_SLURM = ["logs 5", "status", "show 5", "explain 5", "doctor", "doctor --try", "assess"]
NEED_SLURM += ["submit -N 1-2 -p idle SCRIPT", "controller --partition idle"]


@pytest.mark.parametrize("words", NEED_SLURM)
def test_without_slurm_all_commands_end_alike(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = call(*words.replace("SCRIPT", script(tmp_path)).split())
    assert result.exit_code == 3
    assert "Slurm's commands must be on PATH" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_folder_that_is_no_controllers_is_named() -> None:
    result = call("history", "--state", "nofolder")
    said = "bftrainer: nofolder is not the state folder of a controller\n"
    assert (result.exit_code, result.stderr) == (3, said)


@pytest.mark.parametrize("command", [("status",), ("show", "12")])
def test_where_nothing_answers_it_says_so_in_a_line(command: tuple[str, ...]) -> None:
    result = call(*command)
    assert result.exit_code == 3
    assert result.stderr.startswith("bftrainer: neither the controller nor Slurm answers")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [("status",), ("show", "12"), ("explain", "12")])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--state", "nofolder"), "nofolder is not the state folder of a controller (--state)"),
        (("--keeper", "127.0.0.1:1"), "no controller answers at 127.0.0.1:1 (--keeper)"),
    ],
)
def test_what_points_to_no_controller_is_named(
    command: tuple[str, ...], wrong: tuple[str, ...], said: str
) -> None:
    result = call(*command, *wrong)
    assert result.exit_code == 3
    assert result.stderr.startswith(f"bftrainer: {said}, and Slurm does not answer: ")
    assert result.stderr.count("\n") == 1


def test_each_page_that_a_message_names_is_here() -> None:
    root = Path(bftrainer_slurm.__file__).parents[1]
    texts = [
        re.sub(r'"\s+f?"', "", path.read_text()) for path in root.glob("bftrainer_slurm/**/*.py")
    ]
    named = {name for text in texts for name in re.findall(r"docs/[a-z0-9/-]+\.md", text)}
    assert len(named) > 5
    assert [name for name in named if not (root / name).is_file()] == []


UNREADABLE = [
    {"trainers": None},
    {"trainers": [{"array": 9}]},
    {"trainers": [SHOWN | {"submit_s": 1e300}]},
    {"pool": 3},
]


@pytest.mark.parametrize("changed", UNREADABLE, ids=lambda changed: ascii(changed)[:40])
def test_a_status_that_cannot_be_read_is_said_in_a_line(
    changed: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, fail_if_unreadable():
        document: dict[str, Any] = DOCUMENT | changed
        render(document)
        render_trainer(document["trainers"][0])
    assert ended.value.code == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_no_text_of_a_status_reaches_a_terminal_as_it_is() -> None:
    hostile = SHOWN | {"state": "\x1b]0;mine\x07", "launcher": "\x1b[2J"}
    for text in (render(DOCUMENT | {"trainers": [hostile]}), render_trainer(hostile)):
        assert safe_lines(text).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("/shared/bf/controller.json", "'shared' of bftrainer.toml"),
        ("/shared/bf", "'shared' of bftrainer.toml"),
        ("/var/lib/bf/keeper.token", "another folder with --state"),
        ("/shared/bftrainer/keeper.token", "another folder with --state"),
        (None, "another folder with --state"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_remedy(path: str | None, remedy: str) -> None:
    said = oserror_message(
        OSError(13, "Permission denied", path), Path("/var/lib/bf"), "/shared/bf"
    )
    assert said.startswith(f"{path or '/var/lib/bf'}: Permission denied; ")
    assert remedy in said


def test_a_keeper_whose_key_is_missing_says_so(tmp_path: Path) -> None:
    result = call("keeper", "--state", str(tmp_path / "state"), "--key-file", "/nowhere/key")
    assert result.exit_code == 2
    assert result.stderr == "keeper: /nowhere/key cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no script is given"),
        (("-N", "2-4", "absent.sh"), "absent.sh: No such file"),
        (("-p", "idle", "SCRIPT"), "write -N MAX or -N MIN-MAX"),
        (("-N", "2-4", "SCRIPT"), "in which partition?"),
        (("-N", "2-4", "-p", "idle", "--array=9-0", "SCRIPT"), "--array=0-9"),
        (("-N", "2-4", "-p", "idle", "-t", "soon", "SCRIPT"), "not a time limit"),
    ],
)
def test_a_bad_submission_is_refused_with_a_remedy(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    path = script(tmp_path)
    result = call("submit", *(path if word == "SCRIPT" else word for word in arguments))
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_script_without_an_end_is_refused() -> None:
    result = call("submit", "-N", "1-2", "-p", "idle", "/dev/zero")
    assert result.exit_code == 2
    assert result.stderr == "bftrainer: /dev/zero: not a batch script, it has more than 4 MiB\n"


def test_a_site_takes_trainers_by_sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bftrainer.toml").write_text('partition = "idle"\n')
    arguments = ("-N", "2-4", script(tmp_path))
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, does in (("sbatch", 'echo "$@" >> $0.told; wc -l < $0.told'), ("squeue", "echo x")):
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{programs}:/usr/bin:/bin")
        result = call("submit", "--bftrainer=weight=2", *arguments[:2], "--array=4-5", arguments[2])
    assert result.stdout == "Submitted trainer 1 for task 4\nSubmitted trainer 2 for task 5\n"
    told = "--parsable --bftrainer=weight=2 --nodes=2-4 --array=4-5 --array={} {}\n"
    path = arguments[-1]
    assert (programs / "sbatch.told").read_text() == told.format(4, path) + told.format(5, path)
    assert "in which partition?" in call("submit", "--personal", *arguments).stderr
    own = ("--personal", "-p", "idle")
    assert call("submit", *own, *arguments).exit_code == 3  # only slurmctld is missing


def test_a_directive_that_cannot_be_read_is_one_line_at_a_site_too(tmp_path: Path) -> None:
    (tmp_path / "bftrainer.toml").write_text('partition = "idle"\n')
    path = tmp_path / "odd.sh"
    path.write_text("#!/bin/sh\n#SBATCH --job-name='odd\nsrun torchrun train.py\n")
    result = call("submit", "-N", "2-4", str(path))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_a_program_is_not_taken_for_a_script(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(b"\x7fELF\xff\xfe\x00")
    assert "not a text file" in call("submit", "-N", "1-2", str(path)).stderr
