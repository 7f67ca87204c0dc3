"""What users write in a submission: the option, the comment, and options of sbatch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

from bftrainer_slurm.spec import (
    MAX_COMMENT,
    SpecError,
    TrainerRecord,
    format_comment,
    parse_comment,
    parse_spec,
)
from bftrainer_slurm.submission.directives import SubmissionError, read_directives, read_options
from bftrainer_slurm.submission.per_node import WrittenOptions
from bftrainer_slurm.submission.rewrite import Asked, Rewriting, Site, rewrite
from bftrainer_slurm.submission.rewrite_program import answer
from tests.fuzz import promise


def option(data: bytes) -> None:
    """Read ``--bftrainer=DATA``."""
    with _or_one_clean_line():
        parse_spec(_text(data))


def comment(data: bytes) -> None:
    """Read a comment, also one that says that it is a trainer's, and write it again."""
    for text in (_text(data), f"bftrainer:{_text(data)}"):
        record = None
        with _or_one_clean_line():
            record = parse_comment(text)
        if isinstance(record, TrainerRecord):
            promise(parse_comment(format_comment(record)) == record, "written, it is another")
        # What squeue prints has lost the bytes that were no text.
        lost = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        with _or_one_clean_line():
            parse_comment(lost)


def rewriting(data: bytes) -> None:
    """Rewrite the options of a command line (the words before an empty one) and of a script."""
    line, _, script = _text(data).partition("\n")
    words = line.split(" ")
    done = None
    with _or_one_clean_line():
        written = WrittenOptions(read_directives(f"#!/bin/sh\n{script}"), read_options(words))
        given = {"job-name": "x", **(written.script or {}), **written.command}
        site = Site("bftrainer", qos=given.get("comment", ""), share=len(words) % 2 == 0)
        asked = Asked(given, written, given.get("bftrainer"), 0.0)
        done = rewrite(asked, site, lambda words: script)
    if isinstance(done, Rewriting):
        _promise_trainer(done)


def submission(data: bytes) -> None:
    """Give the program that the plugin runs a document that is none, and one with any texts."""
    _promise_answer(answer(data))
    text = _text(data)
    options = {"nodes": "2-4", "comment": text, text[:20] or "time": text[20:]}
    likely = {"pid": os.getpid(), "arguments": 0, "spec": text, "options": options, "site": []}
    _promise_answer(
        answer(json.dumps({**likely, "max_array_size": 0, "max_job_count": 0}).encode())
    )


def _promise_trainer(done: Rewriting) -> None:
    settings, record = done.settings, done.record
    promise(settings["array"] == f"0-{record.max_nodes}", "not an element for each node")
    promise(parse_comment(settings["comment"]) == record, "the record is lost")
    promise(len(os.fsencode(settings["comment"])) <= MAX_COMMENT, "Slurm takes no such comment")
    promise(not settings.keys() & set(done.dropped), "set and taken away")
    promise(1 <= record.min_nodes <= record.max_nodes, "no number of nodes will do")


def _promise_answer(words: bytes) -> None:
    texts = words.split(b"\0")
    promise(texts[-4:] == [b"done", b"", b"", b""], "the answer has no end")
    promise(len(texts) % 3 == 1, "not in words of three texts")
    refused = texts[0] == b"refuse"
    promise(refused == (b"refuse" in texts[::3]), "a refusal has other words beside it")


@contextmanager
def _or_one_clean_line() -> Iterator[None]:
    try:
        yield
    except (SpecError, SubmissionError) as error:
        promise(str(error).isprintable() and str(error) != "", f"not one clean line: {error!r}")


def _text(data: bytes) -> str:
    return os.fsdecode(data.partition(b"\0")[0])
