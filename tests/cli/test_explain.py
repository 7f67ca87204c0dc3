"""``bftrainer explain``: the reasons in words, whatever they are."""

from __future__ import annotations

from typing import Any

import pytest

from bftrainer_slurm.cli.explain import as_document, lines
from bftrainer_slurm.planner.limit import Limit
from bftrainer_slurm.reader.sentences import reasons

TERMS = {
    "key": "12",
    "had": 2,
    "nodes": 3,
    "least": 1,
    "most": 8,
    "limit": "others",
    "forward_s": 120.0,
    "pool": 8,
    "usable": 8,
    "free": 0,
    "sizes": [
        {"nodes": 3, "rate": 2.0, "rescale": 16.0, "worth": 224.0},
        {"nodes": 4, "rate": 2.5, "rescale": 16.0, "worth": 284.0},
    ],
    "better": 4,
    "gain": 60.0,
    "loss": 90.0,
    "price": 70.0,
    "time_s": 1000.0,
}
TRAINER = {
    "array": 12,
    "name": "digits",
    "user": "alice",
    "state": "running",
    "why": None,
    "nodes": ["n1", "n2", "n3"],
    "starting": [],
    "min_nodes": 1,
    "max_nodes": 8,
    "plan": TERMS,
}
STATUS: dict[str, Any] = {
    "down": None,
    "pool": {"nodes": 8, "used": 8, "starting": 0, "planned": 8, "free": [], "gpus": None},
    "left_alone": {"reserved": 2, "kept for ordinary jobs": 0},
    "trainers": [],
}


def test_which_idle_nodes_are_barred_is_told() -> None:
    bar = {"why": "reserved", "nodes": 7, "some": ["n1", "n2"], "for_s": None}
    own = bar | {"why": "Slurm refuses it", "nodes": 1, "some": ["n3"], "for_s": 40.0}
    found = reasons(TRAINER | {"barred": [own]}, STATUS | {"barred": [bar]})
    assert found[-2:] == [
        "No trainer starts on n1, n2 and 5 more: reserved.",
        "It does not start on n3 for up to 40 s: Slurm refuses it.",
    ]


def said(changes: dict[str, Any] | None = None, **terms: Any) -> str:
    """Return the reasons of a trainer with these changes, in one text."""
    return " ".join(reasons(TRAINER | {"plan": TERMS | terms} | (changes or {}), STATUS))


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"limit": "most", "most": 3}, "It has 3 nodes, as many as it may have now."),
        ({"limit": "pool", "usable": 3}, "It has all 3 nodes that it can use now."),
        (
            {"limit": "pool", "usable": 3, "nodes": 2, "sizes": [{"nodes": 2}, {"nodes": 4}]},
            "Next would be 4 nodes, and it can use only 3 now.",
        ),
        (
            {"limit": "pool", "nodes": 0, "least": 4, "usable": 3},
            "It needs at least 4 nodes, and can use only 3 now.",
        ),
        ({"limit": "no gain"}, "it trains no faster on 4 nodes than on 3."),
        (
            {"limit": "cost", "gain": -4.0},
            "A change to 4 nodes costs 16 in rescaling, more than they bring in the 120 s that the "
            "plan looks ahead (-4 in all).",
        ),
        (
            {},
            "With 4 nodes it would gain 60 (+25% a second), but other trainers have 1 of them. "
            "The trainer that would lose least by giving up so many would lose 90.",
        ),
        ({"loss": None}, "none of them alone has so many. To them a node is worth about 70."),
        ({"limit": "unproven"}, "4 nodes would be better (60 more), but the planner ran out of"),
        ({"usable": 5}, "It may use 5 of the pool's 8 nodes: the others are another kind"),
    ],
)
def test_what_keeps_a_trainer_from_more_nodes_is_a_sentence(
    terms: dict[str, Any], sentence: str
) -> None:
    assert sentence in said(**terms)


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"limit": "most", "most": 3}, "It has 6 GPUs, as many as it may have now."),
        ({"limit": "pool", "usable": 3}, "It has all 6 GPUs that it can use now."),
        (
            {"limit": "pool", "usable": 3, "nodes": 2, "sizes": [{"nodes": 2}, {"nodes": 4}]},
            "Next would be 8 GPUs, and it can use only 6 now.",
        ),
        (
            {"limit": "pool", "nodes": 0, "least": 4, "usable": 3},
            "It needs at least 8 GPUs, and can use only 6 now.",
        ),
        ({"limit": "no gain"}, "it trains no faster on 8 GPUs than on 6."),
        ({"limit": "cost", "gain": -4.0}, "A change to 8 GPUs costs 16 in rescaling, more than"),
        ({}, "With 8 GPUs it would gain 60 (+25% a second), but other trainers have 2 of them."),
        ({"loss": None}, "To them 2 GPUs of a node are worth about 70."),
        ({"limit": "unproven"}, "8 GPUs would be better (60 more), but the planner ran out of"),
        (
            {"usable": 5},
            "It takes 2 GPUs of each of its nodes. Without other trainers it could have as many on "
            "5 of the pool's 8 nodes.",
        ),
    ],
)
def test_a_trainer_of_parts_of_nodes_has_its_gpus_counted(
    terms: dict[str, Any], sentence: str
) -> None:
    assert sentence in said(gpus=2, **terms)


def test_a_trainer_of_whole_nodes_is_told_that_ordinary_jobs_have_parts_of_others() -> None:
    one = TRAINER | {"plan": TERMS | {"usable": 5}}
    shared = {"left": 8, "used": 0, "starting": 0, "planned": 0}
    for gpus, there in ((shared, True), (None, False)):
        found = " ".join(reasons(one, STATUS | {"pool": STATUS["pool"] | {"gpus": gpus}}))
        assert (
            "of the pool's 8 nodes: the others have ordinary jobs, are another" in found
        ) is there


def test_where_trainers_share_nodes_the_gpus_that_they_have_are_told() -> None:
    one = TRAINER | {"gpus": 2, "plan": TERMS | {"gpus": 2}}
    gpus = {"left": 20, "used": 6, "starting": 2, "planned": 12}
    pool = {"nodes": 8, "used": 6, "starting": 1, "planned": 8, "free": [], "gpus": gpus}
    status = STATUS | {"pool": pool, "trainers": [one, TRAINER]}
    found = " ".join(reasons(TRAINER, status))
    assert (
        "Trainers run on 6 of the 8 nodes that ordinary jobs do not fill, with 6 of the 20 GPUs "
        "left there, and start on 1 more (2 GPUs); the plan gives them 8 (12 GPUs). Idle"
    ) in found
    shown = list(lines(one, status, now_s=1007.4))
    assert shown[0].endswith("running, 6 GPUs on 3 nodes, wants 1 to 8 nodes")
    heading = next(at for at, line in enumerate(shown) if "brings" in line)
    rows = [line.split()[0] for line in shown[heading : heading + 3]]
    assert rows == ["GPUs", "6", "8"]
    assert "when it had 4 GPUs" in " ".join(" ".join(shown).split())


def test_who_would_lose_nothing_is_not_told_of_it() -> None:
    assert "lose the" not in said({"loss": {"from_start": True, "seconds": 0.4}})


def test_there_is_a_sentence_for_each_limit() -> None:
    assert len({said(limit=limit.value) for limit in Limit}) == len(Limit)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"state": "given up", "why": "failed 3 times"}, "It was given up: failed 3 times."),
        ({"state": "finished"}, "It has finished."),
        ({"state": "withheld"}, "An operator holds it."),
        ({"why": "it asks for licences"}, "It cannot have more now: it asks for licences."),
        ({"starting": ["n4"]}, "1 node more is starting."),
        ({"nodes": ["n1"]}, "The plan gives it 3 nodes; it is on its way there."),
        ({"plan": None}, "It is in no plan now: it is new, it waits after a failure"),
        ({"plan": None, "hidden": True}, "Only alice sees what the plan says about it."),
        ({"left_out": "3 nodes: boom"}, "It does without 3 nodes: boom."),
        ({"left_out": "1-3 nodes: boom", "plan": None}, "It does without 1-3 nodes: boom."),
        ({"sizes": [2, 4, 8]}, "It trains on 2, 4 or 8 nodes only, as its user asked."),
        ({"step": 4, "min_nodes": 4}, "It trains on 4 to 8 nodes in steps of 4 only, as its"),
        (
            {"loss": {"from_start": True, "seconds": 734.0}},
            "It begins at step 0 again after each change of nodes. A change now would lose the 12 "
            "min that it has trained since its last start, so the plan keeps its size unless",
        ),
        (
            {"loss": {"from_start": False, "seconds": 52.0}},
            " A change now would lose the 52 s that it has trained since its last checkpoint, so",
        ),
    ],
)
def test_why_it_waits_or_changes_is_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    assert sentence in said(changes)


def test_idle_nodes_that_trainers_may_not_have_are_counted_by_why() -> None:
    assert "without ordinary jobs. Idle, but left alone: 2 (reserved)." in said()


def test_behind_a_queue_that_passes_stop_in_a_trainer_learns_it_while_it_has_to_start() -> None:
    stopped = {"stopped_pass": {"tried": 500, "left": 253}}
    sentence = "Slurm's last backfill pass stopped after 500 tries with 253 jobs left."
    for changes, told in (({"nodes": []}, True), ({"starting": ["n4"]}, True), ({}, False)):
        found = " ".join(reasons(TRAINER | changes, STATUS | stopped))
        assert (sentence in found) is told
    assert sentence not in " ".join(reasons(TRAINER | {"nodes": []}, STATUS))


def test_while_the_controller_is_down_nobody_plans() -> None:
    down = STATUS | {"down": "the controller is down", "pool": None}
    (sentence,) = reasons(TRAINER | {"plan": None}, down)
    assert sentence.startswith("No plans are made now: the controller is down.")


def test_the_sizes_are_a_table_with_the_planned_one_marked() -> None:
    shown = list(lines(TRAINER, STATUS, now_s=1007.4))
    assert shown[0] == "trainer 12 digits of alice: running, 3 nodes, wants 1 to 8 nodes"
    rows = [line.split() for line in shown if line.strip()[:1].isdigit()]
    assert rows == [
        ["3", "240", "-16", "224", "<-", "the", "plan"],
        ["4", "300", "-16", "284"],
    ]
    assert "planned 7 s ago, when it had 2 nodes" in " ".join(" ".join(shown).split())


def test_hostile_names_cannot_write_to_the_terminal() -> None:
    hostile = TRAINER | {"name": "\x1b[2Jevil", "why": "\x1b]0;mine\x07"}
    assert "\x1b" not in "".join(lines(hostile, STATUS, 1000.0))


def test_json_has_the_terms_and_the_sentences() -> None:
    found = as_document(TRAINER, STATUS)
    assert (found["schema"], found["plan"]) == (1, TERMS)
    assert found["pool"]["left_alone"] == STATUS["left_alone"]
    assert found["reasons"] == reasons(TRAINER, STATUS)


NOISY: dict[str, Any] = {
    "curve": {"unit": "samples", "points": [{"nodes": n, "rate": 100.0 * n, "measured": True}
                                            for n in (1, 4)]},
    "noise": {"samples": 4000.0, "node_batch": 500.0, "given": True},
}  # fmt: skip
BY_GOODPUT = STATUS | {"controller": {"objective": "goodput+finish"}}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {},
            "On 3 nodes it makes 300 samples/s, and a sample counts 0.82 of one on a single node, "
            "which is a goodput of 245. Its noise scale: 4,000 samples (given), 500 samples of "
            "each node in a step.",
        ),
        (
            {"noise": {"samples": 4000.0, "node_batch": 0.0, "given": False}},
            "On 3 nodes it makes 300 samples/s, and a sample counts 1.00 of one on a single node, "
            "which is a goodput of 300. Its noise scale: 4,000 samples (measured), as many samples "
            "in a step on any number of nodes.",
        ),
        (
            {"noise": None},
            "A sample counts the same on any number of its nodes, as its gradient noise scale, or "
            "how many samples a step has, is not known.",
        ),
    ],
)
def test_both_factors_of_goodput_are_told(changes: dict[str, Any], sentence: str) -> None:
    one = TRAINER | NOISY | changes
    assert sentence in reasons(one, BY_GOODPUT)
    assert sentence not in reasons(one, STATUS)
