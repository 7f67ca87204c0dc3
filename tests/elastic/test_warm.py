"""A script in a forked worker behaves as one that Python runs by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_start_method
from pathlib import Path

import pytest

from scripts.labcluster.waiting import wait_until

pytestmark = pytest.mark.torch

_FORKER = Path(__file__).with_name("forker.py")


@dataclass(frozen=True)
class Ran:
    output: list[str]
    code: int | str | None  # None: it ended well
    failure: str


@pytest.fixture(scope="module")
def forker() -> Iterator[subprocess.Popen[str]]:
    # Torch, which this process may have imported, has set variables here too.
    given = {name: one for name, one in os.environ.items() if "INDUCTOR" not in name}
    command = [sys.executable, str(_FORKER)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=given, text=True)
    yield process
    assert process.stdin is not None
    process.stdin.close()
    process.wait(120)


Run = Callable[..., Ran]


@pytest.fixture
def run(forker: subprocess.Popen[str], tmp_path: Path) -> Run:
    """Runs a script, or what ``argv`` says, in a worker."""

    def run(script: str, argv: list[str] | None = None, **environment: str) -> Ran:
        path = tmp_path / "project" / "train.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(script))
        case = {"argv": argv or [str(path)], "environment": environment}
        assert forker.stdin is not None and forker.stdout is not None
        forker.stdin.write(json.dumps(case) + "\n")
        forker.stdin.flush()
        answer = json.loads(forker.stdout.readline())
        return Ran(answer["output"].splitlines(), answer["code"], answer["failure"])

    return run


SEEN = {
    "torch is there already": (
        "import sys; print('torch' in sys.modules, 'torch._dynamo' in sys.modules)", "True True"
    ),
    "cuda is untouched": ("import torch; print(torch.cuda.is_initialized())", "False"),
    "its garbage is collected, and nothing that was there before it": (
        "import gc, torch; print(gc.isenabled(), gc.is_tracked(torch), "
        "any(one is torch.__dict__ for one in gc.get_objects()))", "True True False"
    ),
    "its classes can be pickled": (
        "import pickle\nclass Own: pass\n"
        "print(type(pickle.loads(pickle.dumps(Own()))) is Own, Own.__module__)", "True __main__"
    ),
    "half a line appears as it is printed": (
        "import os, signal; print('seen', end=''); os.kill(os.getpid(), signal.SIGKILL)", "seen"
    ),
    "its variables are those that it was given": (
        "import os; print([one for one in os.environ if 'INDUCTOR' in one])", "[]"
    ),
    "it is the main process": (
        "import multiprocessing; print(multiprocessing.current_process().name)", "MainProcess"
    ),
    # By default a DataLoader does not run a script once more that has no __main__ guard.
    "its processes are started as those of any program": (
        "import multiprocessing; print(multiprocessing.get_start_method())", get_start_method()
    ),
    "exit handlers run after its threads": (
        "import atexit, threading, time\natexit.register(print, 'at exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\n"
        "print('script')", "script\nthread\nat exit"
    ),
    "buffers of libraries in C are written at the end": (
        "import ctypes; ctypes.CDLL(None).printf(b\"still in C's buffer\\n\")",
        "still in C's buffer"
    ),
    "a group that it destroys is there until it ends": (
        "from pathlib import Path\nimport torch.distributed as dist\nfrom torch import nn\n"
        "def train():\n"
        "    one = {'store': dist.HashStore(), 'rank': 0, 'world_size': 1}\n"
        "    dist.init_process_group('gloo', **one)\n"
        "    parallel = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))\n"
        "    dist.barrier()\n    dist.destroy_process_group()\n"
        "train()\n"
        "names = [path.read_text() for path in Path('/proc/self/task').glob('*/comm')]\n"
        "print(dist.is_initialized(), 'pt_gloo_runloop\\n' in names)", "False True"
    ),
} | {
    f"destructors run at the end: {end}": (
        f"class Own:\n    def __del__(self): print('gone')\nown = Own()\n{end}", "gone"
    )
    for end in ("pass", "import sys; sys.exit(3)", "1 / 0")
}  # fmt: skip


@pytest.mark.parametrize(("script", "printed"), SEEN.values(), ids=SEEN)
def test_it_sees_what_any_program_does(run: Run, script: str, printed: str) -> None:
    assert run(script).output == printed.splitlines()


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_data_loaders_workers_know_the_scripts_classes(run: Run, context: str) -> None:
    ran = run(f"""
        import torch
        class Own(torch.utils.data.Dataset):
            def __len__(self): return 4
            def __getitem__(self, i): return i
        if __name__ == "__main__":
            loader = torch.utils.data.DataLoader(
                Own(), 2, num_workers=2, multiprocessing_context="{context}")
            print([batch.tolist() for batch in loader])
    """)
    assert ran.output == ["[[0, 1], [2, 3]]"], ran.failure


def test_a_file_a_folder_and_a_module_run_as_in_python(run: Run, tmp_path: Path) -> None:
    (folder := tmp_path / "program").mkdir()
    (folder / "helper.py").write_text("NAME = 'beside it'")
    script = "import helper, sys; print(__name__, __file__, helper.NAME, sys.argv, sys.path[0])"
    for name, word in (("train.py", folder / "train.py"), ("__main__.py", folder)):
        (folder / name).write_text(script)
        argv = [str(word), "--rate", "1e-3"]
        assert run("", argv).output == [f"__main__ {folder / name} beside it {argv} {folder}"]
    assert run("", ["-m", "json.tool", "--help"]).output[0].startswith("usage:")


@pytest.mark.parametrize(
    ("end", "code", "failure"),
    [
        ("pass", None, ""),
        ("import sys; sys.exit()", None, ""),
        ("import sys; sys.exit(0)", None, ""),
        ("import sys; sys.exit(3)", 3, "process 0 terminated with exit code 3"),
        ("raise KeyboardInterrupt", 130, ""),
        ("import os; os.kill(os.getpid(), 9)", -9, "process 0 terminated with signal SIGKILL"),
    ],
)
def test_how_it_ended_is_told(run: Run, end: str, code: int | None, failure: str) -> None:
    ran = run(end)
    assert ran.code == code
    assert failure in ran.failure


def test_an_exceptions_last_lines_are_told(run: Run) -> None:
    ran = run("def train(): raise ValueError('no such data')\ntrain()")
    assert ran.code == 1
    assert ran.failure.splitlines()[-1] == "ValueError: no such data"
    assert "in train" in ran.failure
    assert len(ran.failure) <= 2000


def test_a_script_that_is_missing_is_said_to_be(run: Run) -> None:
    assert "nowhere/train.py" in run("", ["nowhere/train.py"]).failure


def test_files_that_a_script_has_left_open_are_written(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "results.txt"
    ran = run(f"file = open({str(path)!r}, 'w'); print('accuracy 0.93', file=file)")
    assert (ran.code, path.read_text()) == (None, "accuracy 0.93\n")


def test_shared_memory_that_a_killed_script_has_left_is_gone_before_the_next_one(run: Run) -> None:
    script = """
        import os, signal
        from multiprocessing.shared_memory import SharedMemory
        kept = SharedMemory("bftrainer-test-left", create=True, size=8)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    for _ in range(2):
        assert run(script).failure == "process 0 terminated with signal SIGKILL"
        wait_until(lambda: not Path("/dev/shm/bftrainer-test-left").exists())


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_worker_has_the_threads_that_torchrun_gives_it(run: Run, threads: str) -> None:
    ran = run("import torch; print(torch.get_num_threads())", OMP_NUM_THREADS=threads)
    assert ran.output == [threads]


def test_each_process_has_random_numbers_of_its_own(run: Run) -> None:
    script = "import numpy, random; print(numpy.random.random(), random.random())"
    first, second = run(script).output[0].split(), run(script).output[0].split()
    assert first[0] != second[0]
    assert first[1] != second[1]
