"""The page's files and questions, without a port: who is answered what, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias
from unittest.mock import Mock

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


Made: TypeAlias = Callable[..., Asking]  # of a key, and changes of the status


@pytest.fixture
def made(week: Week, history: Path) -> Made:
    def make(key: str = "", **changes: Any) -> Asking:
        facts = facts_of(status_of(week) | changes)
        return Asking(site(history, facts, SECRET, clock=lambda: week.now_s), key)

    return make


@pytest.fixture
def asking(made: Made) -> Asking:
    return made()


def test_now_is_the_status_as_everybody_may_see_it(asking: Asking, week: Week) -> None:
    now, status = asking("now"), status_of(week)
    assert (now["schema"], now["down"]) == (1, None)
    assert now["pool"]["used"] == status["pool"]["used"]
    assert (now["nodes"], now["preempted"]["started"]) == (len(week.names), 2412)
    assert now["count"] == len(now["trainers"]) == len(status["trainers"])
    assert all(one["samples_per_s"] is None for one in now["trainers"])


def test_gpus_of_shared_nodes_and_each_problem_of_the_controller_are_told(
    made: Made, week: Week
) -> None:
    status = status_of(week)
    whole = status["trainers"][0]
    part = whole | {"array": 1, "nodes": ["n1", "n2"], "gpus": 4}
    told = {"error": "no nodes", "history": "disk full", "slurm": ["tier"]}
    now = made(trainers=[whole, part], controller={**status["controller"], **told})("now")
    parts = {one["array"]: one["part"] for one in now["trainers"]}
    assert parts == {whole["array"]: None, 1: "8 GPUs"}
    assert now["trouble"] == ["no nodes", "disk full", "tier"]


def test_the_list_is_bounded_and_those_with_most_nodes_are_in_it(
    made: Made, week: Week, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions_module, "_MOST_TRAINERS", 2)
    now, all_ = made()("now"), status_of(week)["trainers"]
    assert now["left_out"] == len(all_) - 2
    most = sorted((len(one["nodes"]) for one in all_), reverse=True)[:2]
    assert [one["nodes"] for one in now["trainers"]] == most


def test_an_owner_sees_notes_reasons_and_progress_of_their_own(made: Made, week: Week) -> None:
    one = next(one for one in status_of(week)["trainers"] if one["failures"])
    owner, other = made(key_of(one["user"], SECRET)), made()
    question = f"trainer?array={one['array']}"
    assert "Read its last output" in owner(question)["notes"][0]["do"]
    assert owner(question)["status"]["plan"] == one["plan"]
    assert owner(question)["standing"].startswith(f"{one['state']}, ")
    assert other(question)["standing"] == owner(question)["standing"]
    assert "Only" not in owner(question)["reasons"][0]
    assert other(question)["reasons"][0].startswith(f"Only {one['user']} sees what the plan says")
    assert "plan" not in other(question)["status"]
    assert "CUDA" not in json.dumps(other(question))
    assert other(question)["changes"] == owner(question)["changes"] != []


def test_a_trainer_that_slurm_has_forgotten_has_its_story_still(asking: Asking, week: Week) -> None:
    alive = {one["array"] for one in status_of(week)["trainers"]}
    gone = next(one for one in week.trainers if one.array not in alive and one.grew)
    told = asking(f"trainer?array={gone.array}")
    assert (told["user"], told["name"], told["status"]) == (gone.user, gone.name, None)
    assert told["changes"]


def test_a_controller_is_down_where_it_said_so_or_says_nothing() -> None:
    def why(error: str | None, age_s: float) -> str | None:
        return down({"controller": {"error": error}}, age_s)

    assert why(None, 29.9) is why("no answer", 0.0) is None
    silent = "the controller is down, or its turn takes long; its last status is 30 s old"
    assert why(None, 30.0) == silent
    assert why("stopped", 0.0) == "the controller is down: it was stopped"


def test_where_jobs_are_private_nobody_is_named_without_a_key(made: Made, week: Week) -> None:
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


def test_where_jobs_are_private_a_key_names_ones_own(made: Made, week: Week) -> None:
    one = next(one for one in week.trainers if one.now)
    own = made(key_of(one.user, SECRET), private=["jobs"])
    named = own("nodes?from=1795259200&to=1795518400")["trainers"]
    assert {trainer["user"] for trainer in (*named, *own("now")["trainers"])} == {one.user}
    assert own(f"trainer?array={one.array}")["user"] == one.user


def test_where_nodes_are_private_all_of_them_are_one_row(made: Made) -> None:
    private = made(private=["nodes"])
    assert [row[2] for row in private("nodes?first=3&last=5")["rows"]] == [120]
    assert len(Asking(private.page, SECRET)("nodes?first=3&last=5")["rows"]) == 2


@pytest.mark.parametrize("private", ["usage", "jobs"])
def test_the_harvest_names_nobody_else_whoever_asks_before(
    private: str, made: Made, week: Week
) -> None:
    user, anybody = week.trainers[0].user, made(private=[private])
    assert len(Asking(anybody.page, SECRET)("harvest")["users"]) > 1
    assert anybody("harvest")["users"] == []
    assert Asking(anybody.page, key_of(user, SECRET))("harvest")["users"] == [user]


def test_a_status_that_says_nothing_of_privacy_is_private(week: Week, history: Path) -> None:
    facts = facts_of(no_status(week.now_s, {"mode": "site"}))
    asking = Asking(site(history, facts, "", clock=lambda: week.now_s))
    assert asking("now")["pool"] is None
    assert asking("harvest")["users"] == []


def test_why_there_is_no_answer_is_said(made: Made, week: Week, tmp_path: Path) -> None:
    early = Asking(site(tmp_path / "none.sqlite", facts_of(None), ""))
    assert "has published nothing yet" in early("now", 503)["error"]
    assert early.answer("/metrics").status == 503
    assert "restart both" in made(schema=2)("now", 503)["error"], "a status of another version"
    blind = Asking(site(tmp_path / "none.sqlite", facts_of(status_of(week)), ""))
    assert "none.sqlite: unable to open" in blind("nodes", 503)["error"]
    assert blind("now")["schema"] == 1


BAD_NODES = (
    *("columns=0", "columns=513", "rows=1e3", "from=-1", "from=9&to=8", "from=1&to=1795518400"),
    *("to=99999999999999999999999999", "to=NaN", "to=%F0%9F%92%A9", "to=\u0663", "first=7&last=7"),
)
BAD_TRAINERS = ("array=0", "array=9223372036854775808", "array=12;DROP TABLE nodes")
BAD = (
    *(f"nodes?{one}" for one in BAD_NODES),
    *(f"trainer?{one}" for one in BAD_TRAINERS),
    *("trainer", "trainer?" + "&".join(f"a{n}=1" for n in range(1000))),
    *("delays?from=0", "harvest?from=0"),
)
NOT_THERE = (
    *("/api/1/trainer?array=999", "/api/1/nothing", "/api/1/", "/api/1/now/", "/api/1/../now"),
    *("/api/2/now", "/nothing", "/../page.py", "/%2e%2e/page.py", "/none/index.html"),
    "/history/all",
)


@pytest.mark.parametrize(
    ("path", "status"),
    [*((f"/api/1/{one}", 400) for one in BAD), *((one, 404) for one in NOT_THERE)],
    ids=lambda value: ascii(value)[:40],
)
def test_what_cannot_be_answered_is_refused_in_a_sentence(
    asking: Asking, path: str, status: int
) -> None:
    answer = asking.answer(path)
    assert answer.status == status
    assert answer.document["error"]


@settings(max_examples=50, deadline=None, suppress_health_check=[*HealthCheck])
@given(path=st.text(max_size=60), query=st.text(max_size=60), host=st.text(max_size=20))
def test_whatever_is_asked_has_an_answer(asking: Asking, path: str, query: str, host: str) -> None:
    for start in ("/", "/api/1/", "/api/1/nodes?to=", "/api/1/trainer?array="):
        begin, _, more = start.partition("?")
        answer = answer_of(asking.page, begin + path * (not more), more + query, host=host)
        assert answer.status in (200, 307, 400, 404, 421)
        assert "content-security-policy" in answer.headers


def test_only_this_hosts_names_are_answered(week: Week, history: Path) -> None:
    facts = facts_of(status_of(week))
    asking = Asking(site(history, facts, "", "Ctl.example.org", clock=lambda: week.now_s))

    def answered(*hosts: str) -> set[int]:
        return {asking.answer(path, host=one).status for one in hosts for path in ("/", "/metrics")}

    assert answered("localhost", "LOCALHOST:80", "", socket.gethostname()) == {200}
    assert answered("127.0.0.1:6741", "[::1]:6741", "[::1]", "10.1.2.3") == {200}, "addresses"
    assert answered("ctl.example.org:6740") == {200}, "the admin's name"
    strangers = ("evil.example", "evil.example:6741", "localhost.evil.example")
    assert answered(*strangers) == {421}, "names that strangers let point here"


def test_everything_that_the_page_loads_is_its_own_and_there(asking: Asking) -> None:
    names = re.findall(r'(?:src|href)="([^#"]+)"', (ASSETS / "index.html").read_text())
    for script in ASSETS.glob("*.js"):
        names += re.findall(r'from "\./([^"]+)"', script.read_text())
    assert {asking.answer(f"/{name}").status for name in names} == {200}


def test_nothing_of_a_page_runs_but_its_own_files(asking: Asking) -> None:
    policy = asking.answer("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    html = (ASSETS / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", html)


def test_texts_from_outside_never_become_html() -> None:
    for name in ("page.js", "map.js", "charts.js", "tools.js"):
        html = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\("
        assert not re.search(html, (ASSETS / name).read_text())


def test_the_vendored_library_is_as_it_was_published() -> None:
    sums = re.findall(r"^([0-9a-f]{64})  (\S+)$", (ASSETS / "vendored.txt").read_text(), re.M)
    assert len(sums) == 2
    for known, name in sums:
        assert hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == known


def test_many_who_ask_the_same_cost_one_answer(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Mock(wraps=nodes_over_time)
    monkeypatch.setattr(questions_module, "nodes_over_time", counted)
    # However late the last one asks, the answer is fresh.
    monkeypatch.setattr(questions_module, "time", SimpleNamespace(monotonic=lambda: 0.0))
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(asking, ["nodes"] * 20))
    counted.assert_called_once()


@pytest.fixture
def questions(week: Week, history: Path) -> Questions:
    return Questions(history, facts_of(status_of(week)), "", clock=lambda: week.now_s)


def test_many_who_ask_for_different_things_are_kept_in_few_answers(
    questions: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions_module, "_MOST_CACHED", 4)
    for n in range(20):
        questions.answer("1", "now", f"a={n}", "")
    assert len(questions.made) == 4


def test_who_would_wait_for_long_is_told_so(
    questions: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions_module, "_MOST_WAIT_S", 0.05)
    with questions.turn, pytest.raises(RequestError, match="too many requests now"):
        questions.answer("1", "now", "", "")
    assert questions.answer("1", "now", "", "")


def test_answers_are_compressed_and_files_not_sent_again_where_that_is_asked_for(
    asking: Asking,
) -> None:
    for path in ("/page.js", "/api/1/now", "/metrics"):
        plain, packed = asking.answer(path), asking.answer(path, accept_encoding="gzip")
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == plain.body
    etag = asking.answer("/page.js").headers["etag"]
    again = asking.answer("/page.js", if_none_match=etag)
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("path", ["/", "/page.js", "/api/1/now", "/metrics"])
def test_nothing_can_be_changed(asking: Asking, path: str) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
        assert answer_of(asking.page, path, method=method).status == 405
    assert answer_of(asking.page, path, method="HEAD").status == 200


def test_a_question_that_fails_fails_alone(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = Mock(side_effect=ZeroDivisionError)
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):  # for the log
        patched.setattr(questions_module, "nodes_over_time", fails)
        asking("nodes")
    assert asking("nodes")["schema"] == 1


def test_no_answer_is_larger_than_what_is_documented(asking: Asking) -> None:
    largest = asking.answer("/api/1/nodes?from=1795259200&to=1795518400&columns=512&rows=512")
    assert len(largest.body) < 2_000_000


def test_each_question_and_each_key_of_its_answer_is_documented(made: Made, week: Week) -> None:
    text = WEB.read_text()
    everything = made(SECRET)
    array = status_of(week)["trainers"][0]["array"]
    for question in ("now", "nodes", "delays", "harvest", f"trainer?array={array}"):
        assert f"`/api/1/{question.partition('?')[0]}`" in text
        keys = everything(question).keys() - {"schema", "time_s"}
        assert [key for key in keys if f"`{key}`" not in text] == []
