"""Every request passes the official client's types, walked to the leaves, or botocore's validator (P5; differential judge)."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from conversations import FAMILY_NAMES, NEUTRAL, everything, prompt
from models_support import VirtualClock
from test_media import TALK, TEXTS
from test_media import asked as about_files
from test_rendering import with_controls
from wire_support import bundle_of
from wire_support import rendered as body_of

from semel.adapters.models.catalog import build_model
from semel.testing.model_server import serve_in_thread
from tests.judges import official, rendered
from tests.judges.broken import BREAK
from tests.judges.rendered import Asked

ROOT = Path(__file__).parents[2]
every_family = pytest.mark.parametrize("family", FAMILY_NAMES)


@every_family
def test_all_conversations_of_a_family_pass_its_judge(family):
    walked = sum(official.judge(family, body_of(bundle_of(family), given)) for given in everything(family).values())
    walked += official.judge(family, body_of(with_controls(family), prompt(NEUTRAL["two parallel calls"])))
    print(f"{family}: {walked} leaves of {len(everything(family)) + 1} requests")
    assert walked > 300


@every_family
def test_files_of_every_kind_pass_the_judge_of_a_family(family):
    """Pictures, documents and text, in messages and in results; text as data of another kind does not, where a client tells."""
    for talk in (TALK, TEXTS):
        assert official.judge(family, body_of(bundle_of(family), about_files(talk))) > 30
    if family == "anthropic_messages":
        body = body_of(bundle_of(family), about_files(TEXTS))
        with pytest.raises(ValueError):
            official.judge(family, body.replace(b'"media_type":"text/plain"', b'"media_type":"text/csv"'))


@every_family
def test_a_judge_finds_a_missing_id(family):
    """Negative control: with lazily validated types it is found only by walking to the leaves."""
    body = json.loads(body_of(bundle_of(family), prompt(NEUTRAL["two parallel calls"])))
    official.JUDGES[family](body)
    BREAK[family](body)
    with pytest.raises(ValueError):
        official.JUDGES[family](body)


@every_family
def test_a_judge_finds_a_member_that_nobody_knows(family):
    body = json.loads(body_of(bundle_of(family), prompt(NEUTRAL["one question"])))
    with pytest.raises(ValueError):
        official.JUDGES[family]({**body, "nonsense": 1})


ANSWERS = [
    {"text": "Both. ", "thinking": "They want both. 🌧", "calls": [{"name": "look", "args": {"city": "Zürich 🌧"}}] * 2},
    {"calls": [{"name": "look", "raw": '{ "city" : "Paris" }'}]},
    {"text": "\n", "calls": [{"name": "look", "args": {"city": "\ufffd"}}]},
    {"calls": [{"name": "look", "raw": '{"city":1e3, "far" : -0.0}'}]},
    {"calls": [{"name": "look", "args": {}}]},
    {"calls": [{"name": "nobody", "args": {"n": 12345678901234567890}}]},
    {"thinking": "Again.", "calls": [{"name": "look", "args": {"city": "a"}}, {"name": "look", "args": {"city": "b"}}]},
    {"calls": [{"name": "look", "args": {"city": "x" * 1000}}]},
    {"calls": [{"name": "look", "args": {"city": "\u2028"}}]},
    {"text": "Done."},
]
FROM_ELSEWHERE = len(ANSWERS)


def asked_by_another_process(*options: str) -> None:
    """One run in each family, in a process of its own, whose requests a peer here receives."""
    with serve_in_thread({"answers": ANSWERS}) as server:
        command = [sys.executable, "-m", "tests.judges.programs.asking", server.url, *options]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
        assert done.returncode == 0, done.stderr


def verdict(kept: Iterable[Asked]) -> tuple[dict[str, int], list[tuple[str, str, bytes]]]:
    """How many leaves of each family were walked, and what its judge does not take."""
    walked, failures = dict.fromkeys(official.JUDGES, 0), []
    for asked in kept:
        try:
            walked[asked.family] += official.judge(asked.family, asked.body, counts=asked.counts)
        except Exception as problem:
            failures.append((asked.family, str(problem)[:300], asked.body[:300]))
    return walked, failures


def test_what_another_process_renders_is_kept_and_judged():
    with rendered.apart() as received:
        asked_by_another_process()
    rendered.RECEIVED.update(received)
    assert Counter(asked.family for asked in received.values()) == dict.fromkeys(FAMILY_NAMES, FROM_ELSEWHERE)
    assert verdict(received.values())[1] == []


def test_what_another_process_renders_wrongly_is_found():
    """Negative control: in every family, all requests of a process but the first are broken, and each of them is found."""
    with rendered.apart() as received:
        asked_by_another_process("broken")
    found = Counter(family for family, _, _ in verdict(received.values())[1])
    assert found == dict.fromkeys(FAMILY_NAMES, FROM_ELSEWHERE - 1)
    assert verdict(rendered.RECEIVED.values())[1] == []


@every_family
def test_what_only_counts_tokens_is_judged_as_such(family):
    """Where an endpoint counts; a body of the other kind is none of its requests."""
    given = prompt(NEUTRAL["two parallel calls"])
    counting = build_model(f"{family}:m@http://127.0.0.1:9/v1", clock=VirtualClock(), environ={})._wire.counting
    if counting is None:
        assert family == "openai_chat"
        return
    body = counting.body(json.loads(body_of(bundle_of(family), given)))
    assert official.judge(family, json.dumps(body).encode(), counts=True) > 10
    with pytest.raises(ValueError):
        official.judge(family, json.dumps({**body, "nonsense": 1}).encode(), counts=True)


@pytest.mark.last
@pytest.mark.timeout(300)
def test_every_request_of_this_run_passes_its_judge():
    """All that was rendered here, and all that a peer received from any process."""
    started = time.monotonic()
    kept = {**rendered.RENDERED, **rendered.RECEIVED}
    walked, failures = verdict(kept.values())
    families = Counter(asked.family for asked in kept.values())
    elsewhere = Counter(asked.family for asked in rendered.from_elsewhere())
    print(f"{len(kept)} requests, {sum(walked.values())} leaves, {time.monotonic() - started:.1f} s: {dict(families)}")
    print(f"{sum(elsewhere.values())} of them from other processes: {dict(elsewhere)}")
    assert failures == []
    assert all(families[family] >= 10 for family in FAMILY_NAMES)
    assert all(elsewhere[family] >= FROM_ELSEWHERE for family in FAMILY_NAMES)
