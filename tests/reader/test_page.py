"""The page's files and questions, without a port: who is answered what, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp

from bftrainer_slurm.controller.publish.keys import key_of
from bftrainer_slurm.controller.publish.status import no_status
from bftrainer_slurm.reader import questions as questions_module
from bftrainer_slurm.reader.facts import RequestError
from bftrainer_slurm.reader.occupancy import nodes_over_time
from bftrainer_slurm.reader.questions import Questions
from bftrainer_slurm.reader.sentences import down
from bftrainer_slurm.reader.site import ASSETS, site
from tests.page.made_up import Week, status_of
from tests.reader.asking import Answer, answer_of, facts_of

SECRET = "s3cret"
WEB = Path(__file__).parents[2] / "docs" / "internals" / "web-api.md"


class Asking:
    """Somebody who asks a page, of this status, at this time."""

    def __init__(self, page: ASGIApp, key: str = "") -> None:
        self.page, self.key = page, key

    def answer(self, path: str, **headers: str) -> Answer:
        path, _, query = path.partition("?")
        auth = {"authorization": f"Bearer {self.key}"} if self.key else {}
        return answer_of(self.page, path, query, **{"host": "localhost:6741", **auth, **headers})

    def __call__(self, question: str, status: int = 200) -> Any:
        found = self.answer(f"/api/1/{question}")
        assert found.status == status, found
        return found.document


def page_of(
    history: Path, status: dict[str, Any] | None, week: Week, age_s: float = 0.0, host: str = ""
) -> ASGIApp:
    return site(history, facts_of(status, age_s), SECRET, host, clock=lambda: week.now_s)


@pytest.fixture
def made(week: Week, history: Path) -> Callable[..., Asking]:
    def make(key: str = "", **changes: Any) -> Asking:
        return Asking(page_of(history, status_of(week) | changes, week), key)

    return make


@pytest.fixture
def asking(made: Callable[..., Asking]) -> Asking:
    return made()


def test_now_is_the_status_as_everybody_may_see_it(asking: Asking, week: Week) -> None:
    now, status = asking("now"), status_of(week)
    assert now["schema"] == 1
    assert now["pool"]["used"] == status["pool"]["used"]
    assert (now["nodes"], now["preempted"]["started"]) == (len(week.names), 2412)
    assert now["count"] == len(now["trainers"]) == len(status["trainers"])
    assert now["down"] is None
    assert all(one["samples_per_s"] is None for one in now["trainers"])


def test_a_trainers_gpus_of_shared_nodes_stand_in_the_list(
    made: Callable[..., Asking], week: Week
) -> None:
    whole = status_of(week)["trainers"][0]
    part = whole | {"array": 1, "nodes": ["n1", "n2"], "gpus": 4}
    now = made(trainers=[whole, part])("now")
    assert {one["array"]: one["part"] for one in now["trainers"]} == {
        whole["array"]: None,
        1: "8 GPUs",
    }


def test_each_problem_of_the_controller_is_told(made: Callable[..., Asking], week: Week) -> None:
    told = {"error": "no nodes", "history": "disk full", "slurm": ["tier"]}
    status = status_of(week)
    now = made(controller={**status["controller"], **told})("now")
    assert now["trouble"] == ["no nodes", "disk full", "tier"]


def test_the_list_is_bounded_and_those_with_most_nodes_are_in_it(
    made: Callable[..., Asking], week: Week, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions_module, "_MOST_TRAINERS", 2)
    now, all_ = made()("now"), status_of(week)["trainers"]
    assert now["left_out"] == len(all_) - 2
    most = sorted((len(one["nodes"]) for one in all_), reverse=True)[:2]
    assert [one["nodes"] for one in now["trainers"]] == most


def test_an_owner_sees_notes_reasons_and_progress_of_their_own(
    made: Callable[..., Asking], week: Week
) -> None:
    one = next(one for one in status_of(week)["trainers"] if one["failures"])
    owner, other = made(key_of(one["user"], SECRET)), made()
    question = f"trainer?array={one['array']}"
    assert "Read its last output" in owner(question)["notes"][0]["do"]
    assert owner(question)["status"]["plan"] == one["plan"]
    assert owner(question)["standing"].startswith(f"{one['state']}, ")
    assert other(question)["standing"] == owner(question)["standing"]
    assert any("other trainers have" in text or "as many" in text
               for text in owner(question)["reasons"])  # fmt: skip
    assert "plan" not in other(question)["status"]
    assert "CUDA" not in json.dumps(other(question))
    assert other(question)["changes"] == owner(question)["changes"] != []


def test_a_trainer_that_slurm_has_forgotten_has_its_story_still(asking: Asking, week: Week) -> None:
    alive = {one["array"] for one in status_of(week)["trainers"]}
    gone = next(one for one in week.trainers if one.array not in alive and one.grew)
    told = asking(f"trainer?array={gone.array}")
    assert (told["user"], told["name"], told["status"]) == (gone.user, gone.name, None)
    assert told["changes"]


@pytest.mark.parametrize(
    ("error", "age_s", "why"),
    [
        (None, 29.0, None),
        ("no answer", 0.0, None),
        (None, 61.0, "the controller is down, or its turn takes long; its last status is 61 s old"),
        ("stopped", 0.0, "the controller is down: it was stopped"),
    ],
)
def test_a_controller_is_down_where_it_said_so_or_says_nothing(
    error: str | None, age_s: float, why: str | None
) -> None:
    assert down({"controller": {"error": error}}, age_s) == why


def test_where_jobs_are_private_nobody_is_named_without_a_key(
    made: Callable[..., Asking], week: Week
) -> None:
    private = made(private=["jobs"])
    array = week.trainers[0].array
    answers = [private(one) for one in ("now", "nodes?from=1795259200&to=1795518400", "harvest")]
    text = json.dumps(answers)
    assert not [one.user for one in week.trainers if f'"{one.user}"' in text]
    assert str(array) not in text
    assert answers[0]["count"] > 0
    assert sum(answers[1]["sums"]["trainers"]) > 0
    assert sum(day["used_h"] for day in answers[2]["days"]) > 0
    private(f"trainer?array={array}", status=404)


def test_where_jobs_are_private_a_key_names_ones_own(
    made: Callable[..., Asking], week: Week
) -> None:
    user = week.trainers[0].user
    own = made(key_of(user, SECRET), private=["jobs"])
    assert {one["user"] for one in own("nodes?from=1795259200&to=1795518400")["trainers"]} == {user}
    assert own("harvest")["users"] == [user]
    assert own(f"trainer?array={week.trainers[0].array}")["user"] == user


def test_where_nodes_are_private_all_of_them_are_one_row(made: Callable[..., Asking]) -> None:
    private = made(private=["nodes"])
    found = private("nodes?first=3&last=5")
    assert [row[2] for row in found["rows"]] == [120]
    assert len(Asking(private.page, SECRET)("nodes?first=3&last=5")["rows"]) == 2


def test_where_usage_is_private_the_harvest_names_nobody_else(
    made: Callable[..., Asking], week: Week
) -> None:
    user = week.trainers[0].user
    private = made(private=["usage"])
    assert private("harvest")["users"] == []
    assert Asking(private.page, key_of(user, SECRET))("harvest")["users"] == [user]
    assert private("now")["trainers"]


def test_answers_are_not_mixed_up_between_those_who_ask(
    made: Callable[..., Asking], week: Week
) -> None:
    anybody = made(private=["jobs"])
    everything = Asking(anybody.page, SECRET)
    assert everything("harvest")["users"]
    assert anybody("harvest")["users"] == []


def test_a_status_that_says_nothing_of_privacy_is_private(week: Week, history: Path) -> None:
    asking = Asking(page_of(history, no_status(week.now_s, {"mode": "site"}), week))
    assert asking("now")["pool"] is None
    assert asking("harvest")["users"] == []


def test_before_the_first_status_the_page_asks_for_patience(week: Week, history: Path) -> None:
    asking = Asking(page_of(history, None, week))
    assert "has published nothing yet" in asking("now", 503)["error"]
    assert asking.answer("/metrics").status == 503


def test_a_status_of_another_version_is_not_guessed_at(made: Callable[..., Asking]) -> None:
    assert "restart both" in made(schema=2)("now", 503)["error"]


@pytest.mark.parametrize(
    ("question", "status"),
    [
        ("nodes?columns=0", 400),
        ("nodes?columns=513", 400),
        ("nodes?rows=1e3", 400),
        ("nodes?from=-1", 400),
        ("nodes?from=9&to=8", 400),
        ("nodes?from=1&to=1795518400", 400),
        ("nodes?to=99999999999999999999999999", 400),
        ("nodes?to=NaN", 400),
        ("nodes?to=%F0%9F%92%A9", 400),
        ("nodes?to=\u0663", 400),
        ("nodes?first=7&last=7", 400),
        ("delays?from=0", 400),
        ("harvest?from=0", 400),
        ("trainer", 400),
        ("trainer?array=0", 400),
        ("trainer?array=9223372036854775808", 400),
        ("trainer?array=12;DROP TABLE nodes", 400),
        ("trainer?array=999", 404),
        ("trainer?" + "&".join(f"a{n}=1" for n in range(1000)), 400),
        ("nothing", 404),
        ("", 404),
        ("now/", 404),
        ("../now", 404),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_sentence(
    asking: Asking, question: str, status: int
) -> None:
    assert asking(question, status)["error"]


@settings(max_examples=50, deadline=None, suppress_health_check=[*HealthCheck])
@given(path=st.text(max_size=60), query=st.text(max_size=60), host=st.text(max_size=20))
def test_whatever_is_asked_has_an_answer(asking: Asking, path: str, query: str, host: str) -> None:
    for start in ("/", "/api/1/", "/api/1/nodes?to=", "/api/1/trainer?array="):
        begin, _, more = start.partition("?")
        answer = answer_of(asking.page, begin + path * (not more), more + query, host=host)
        assert answer.status in (200, 307, 400, 404, 421)
        assert "content-security-policy" in answer.headers


def test_another_version_is_not_served(asking: Asking) -> None:
    assert asking.answer("/api/2/now").status == 404


@pytest.mark.parametrize(
    "path", ["/nothing", "/../page.py", "/%2e%2e/page.py", "/none/index.html", "/history/all"]
)
def test_there_are_no_other_files(asking: Asking, path: str) -> None:
    assert asking.answer(path).status == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:6741", "localhost.evil.example"])
def test_a_name_that_a_stranger_lets_point_here_is_not_answered(asking: Asking, host: str) -> None:
    assert asking.answer("/", host=host).status == 421
    assert asking.answer("/api/1/now", host=host).status == 421


@pytest.mark.parametrize("host", ["", "localhost", "LOCALHOST:80", "127.0.0.1:6741", "[::1]:6741",
                                  "[::1]", "10.1.2.3"])  # fmt: skip
def test_addresses_and_localhost_are_answered(asking: Asking, host: str) -> None:
    assert asking.answer("/", host=host).status == 200


def test_the_name_that_the_admin_has_set_is_answered(history: Path) -> None:
    asking = Asking(site(history, facts_of(None), "", host="Ctl.example.org"))
    assert asking.answer("/", host="ctl.example.org:6741").status == 200


def test_everything_that_the_page_loads_is_its_own_and_there(asking: Asking) -> None:
    html = (ASSETS / "index.html").read_text()
    for name in re.findall(r'(?:src|href)="([^#"]+)"', html):
        assert asking.answer(f"/{name}").status == 200
    for script in ASSETS.glob("*.js"):
        for name in re.findall(r'from "\./([^"]+)"', script.read_text()):
            assert asking.answer(f"/{name}").status == 200


def test_nothing_of_a_page_runs_but_its_own_files(asking: Asking) -> None:
    policy = asking.answer("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    html = (ASSETS / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", html)


@pytest.mark.parametrize("name", ["page.js", "map.js", "charts.js", "tools.js"])
def test_texts_from_outside_never_become_html(name: str) -> None:
    script = (ASSETS / name).read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", script)


def test_a_browser_that_has_a_file_is_not_sent_it_again(asking: Asking) -> None:
    first = asking.answer("/page.js")
    again = asking.answer("/page.js", if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")


def test_the_vendored_library_is_as_it_was_published() -> None:
    sums = re.findall(r"^([0-9a-f]{64})  (\S+)$", (ASSETS / "vendored.txt").read_text(), re.M)
    assert len(sums) == 2
    for known, name in sums:
        assert hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == known


def test_many_who_ask_the_same_cost_one_answer(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    real = nodes_over_time

    def counted(*words: Any) -> dict[str, Any]:
        calls.append(1)
        return real(*words)

    monkeypatch.setattr(questions_module, "nodes_over_time", counted)
    # However late the last one asks, the answer is fresh.
    monkeypatch.setattr(questions_module, "time", SimpleNamespace(monotonic=lambda: 0.0))
    threads = [threading.Thread(target=asking, args=("nodes",)) for _ in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(calls) == 1


def test_many_who_ask_for_different_things_are_kept_in_few_answers(
    week: Week, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions_module, "_MOST_CACHED", 4)
    questions = Questions(history, facts_of(status_of(week)), "", clock=lambda: week.now_s)
    for n in range(20):
        questions.answer("1", "now", f"a={n}", "")
    assert len(questions.made) == 4


def test_who_would_wait_for_long_is_told_so(
    week: Week, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions_module, "_MOST_WAIT_S", 0.05)
    questions = Questions(history, facts_of(status_of(week)), "", clock=lambda: week.now_s)
    with questions.turn, pytest.raises(RequestError, match="too many requests now"):
        questions.answer("1", "now", "", "")
    assert questions.answer("1", "now", "", "")


def test_a_history_that_cannot_be_read_is_said(week: Week, tmp_path: Path) -> None:
    asking = Asking(page_of(tmp_path / "none.sqlite", status_of(week), week))
    assert "none.sqlite: unable to open" in asking("nodes", 503)["error"]
    assert asking("now")["schema"] == 1


@pytest.mark.parametrize("path", ["/page.js", "/api/1/now", "/metrics"])
def test_answers_are_compressed_where_that_is_asked_for(asking: Asking, path: str) -> None:
    plain, packed = asking.answer(path), asking.answer(path, accept_encoding="gzip")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body


@pytest.mark.parametrize("path", ["/", "/page.js", "/api/1/now", "/metrics"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(asking: Asking, path: str, method: str) -> None:
    assert answer_of(asking.page, path, method=method).status == 405
    assert answer_of(asking.page, path, method="HEAD").status == 200


def test_a_question_that_fails_fails_alone(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):  # for the log
        patched.setattr(questions_module, "nodes_over_time", fails)
        asking("nodes")
    assert asking("nodes")["schema"] == 1


def test_no_answer_is_larger_than_what_is_documented(asking: Asking) -> None:
    largest = asking.answer("/api/1/nodes?from=1795259200&to=1795518400&columns=512&rows=512")
    assert len(largest.body) < 2_000_000


def test_each_question_and_each_key_of_its_answer_is_documented(
    made: Callable[..., Asking], week: Week
) -> None:
    text = WEB.read_text()
    everything = made(SECRET)
    array = status_of(week)["trainers"][0]["array"]
    for question in ("now", "nodes", "delays", "harvest", f"trainer?array={array}"):
        assert f"`/api/1/{question.partition('?')[0]}`" in text
        keys = everything(question).keys() - {"schema", "time_s"}
        assert [key for key in keys if f"`{key}`" not in text] == []


def test_a_made_up_week_is_the_same_at_whatever_time_it_ends(week: Week) -> None:
    ends_s = [week.now_s + later_s for later_s in (0.0, 157.0, 1000.0)]
    weeks = [Week(nodes=500, now_s=end_s, days=0.5) for end_s in ends_s]
    begun = [[round(hole.start_s - one.begin_s, 3) for hole in one.holes] for one in weeks]
    present = [[trainer.now for trainer in one.trainers] for one in weeks]
    assert begun == [begun[0]] * 3
    assert present == [present[0]] * 3
