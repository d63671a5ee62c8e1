"""Every request passes the official client's types, walked to the leaves, or botocore's validator (P5; differential judge)."""

import json
import time

import pytest
from conversations import FAMILY_NAMES, NEUTRAL, everything, prompt
from test_media import TALK, TEXTS, asked
from test_rendering import with_controls
from wire_support import bundle_of
from wire_support import rendered as body_of

from tests.judges import official, rendered

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
        assert official.judge(family, body_of(bundle_of(family), asked(talk))) > 30
    if family == "anthropic_messages":
        body = body_of(bundle_of(family), asked(TEXTS))
        with pytest.raises(ValueError):
            official.judge(family, body.replace(b'"media_type":"text/plain"', b'"media_type":"text/csv"'))


BREAK = {
    "anthropic_messages": lambda body: body["messages"][2]["content"][0].pop("tool_use_id"),
    "openai_chat": lambda body: next(m for m in body["messages"] if m["role"] == "tool").pop("tool_call_id"),
    "openai_responses": lambda body: next(i for i in body["input"] if i.get("type") == "function_call").pop("call_id"),
    "gemini": lambda body: body["contents"][2]["parts"][0].update(function_answer={}),
    "bedrock_converse": lambda body: body["messages"][2]["content"][0]["toolResult"].pop("toolUseId"),
}


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


@pytest.mark.last
@pytest.mark.timeout(300)
def test_every_request_rendered_in_this_run_passes_its_judge():
    """All of them, whoever rendered them; those of other processes are not seen."""
    started = time.monotonic()
    walked, families, failures = 0, dict.fromkeys(official.JUDGES, 0), []
    for family, body in rendered.REQUESTS.values():
        try:
            walked += official.judge(family, body)
        except ValueError as problem:
            failures.append((family, str(problem)[:300], body[:300]))
        families[family] += 1
    print(f"{sum(families.values())} requests, {walked} leaves, {time.monotonic() - started:.1f} s: {families}")
    assert failures == []
    assert all(families[family] >= 10 for family in FAMILY_NAMES)
