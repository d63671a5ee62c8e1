"""B32: every form of a server's word on when to try again: waited for, never shortened, declined where it is too long."""

import json
from datetime import UTC, datetime

import pytest
from models_support import VirtualClock
from t26_kinds import refusal
from virtual_runs import BACKOFF_SECONDS, played

from semel.adapters.models.openai_errors import OPENAI_ERRORS
from semel.adapters.models.openai_errors import refusal as refused
from semel.adapters.models.retry_after import LONGEST_MS, retry_after_ms
from semel.adapters.models.script_steps import End, Head, Send
from semel.adapters.models.server_error import failed
from semel.ports.model import Exchange, FailureClass
from tests.cases.serve import recorded

TABLE = json.loads(recorded("B32-headers.json"))
HEADERS = [case for case in TABLE["cases"] if "status" not in case]
BUSY, FINAL, QUOTA = (case for case in TABLE["cases"] if "status" in case)
NOW_MS = int(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp() * 1000)
RESETS_MS = QUOTA["body"]["error"]["resets_at"] * 1000
WAITS = {
    "backoff": None,
    "backoff or 1; no crash": None,
    "backoff or over cap, never sleep forever": None,
    "over cap": LONGEST_MS,
}


def wait_of(case: dict) -> int | None:
    """Milliseconds that the case says the server asks for; None for what is no word on it."""
    wait = case["wait_s"]
    if not isinstance(wait, str):
        return round(wait * 1000)
    return 86_400_000 if wait.startswith("over cap: ") else WAITS[wait]


class OnThatDay(VirtualClock):
    """Its wall clock begins where the case has it."""

    def now_ms(self) -> int:
        return NOW_MS + round(self._now * 1000)


def told(case: dict, now_ms: int):
    exchange = Exchange(http_status=case["status"])
    headers = case.get("h", {})
    error = refused(case["status"], headers, json.dumps(case.get("body", {})).encode())
    return failed(error, exchange, table=OPENAI_ERRORS, where="s", headers=headers, now_ms=now_ms)


def test_b32_every_form_of_the_header_is_read_and_junk_is_none():
    assert datetime.strptime(TABLE["now"], "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC).timestamp() * 1000 == NOW_MS
    for case in HEADERS:
        assert retry_after_ms(case["h"], NOW_MS) == wait_of(case), case
    assert (len(HEADERS), len(TABLE["cases"])) == (13, 16)


def test_b32_statuses_and_a_body_that_names_its_reset():
    busy, final, quota = told(BUSY, NOW_MS), told(FINAL, NOW_MS), told(QUOTA, RESETS_MS - 86_400_000)
    assert (busy.failure, busy.retryable, busy.retry_after_ms) == (FailureClass.OVERLOADED, True, None)
    assert (final.failure, final.retryable) == (FailureClass.RATE_LIMIT, False)
    assert (quota.failure, quota.retryable, quota.retry_after_ms) == (FailureClass.QUOTA_EXHAUSTED, False, 86_400_000)


@pytest.mark.anyio
@pytest.mark.parametrize("at", range(13))
async def test_b32_a_run_waits_as_long_as_it_is_asked_to_or_ends_by_name_at_once(at: int):
    case = HEADERS[at]
    asked_ms = wait_of(case)
    clock = OnThatDay()
    ran = await played("openai_chat", lambda family: refusal(family, 429, **case["h"]), 1, clock=clock)
    if asked_ms is not None and asked_ms > 300_000:
        assert (ran.end, ran.asked) == ("rate_limit", 1)
        assert "asks to wait" in ran.result.error.message
        assert clock.monotonic() < 1
    else:
        assert (ran.end, ran.asked) == ("completed", 2)
        assert ran.waits[0] >= max((asked_ms or 0) / 1000, BACKOFF_SECONDS[0])
        assert ran.waits[0] < max((asked_ms or 0) / 1000, 1.0) + 0.1


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("case", "end", "asked"), [(BUSY, "completed", 2), (FINAL, "rate_limit", 1), (QUOTA, "quota_exhausted", 1)]
)
async def test_b32_a_run_goes_by_the_status_and_by_the_body(case: dict, end: str, asked: int):
    body = json.dumps(case.get("body", {})).encode()
    head = Head(status=case["status"], headers={"content-type": "application/json", **case.get("h", {})})
    ran = await played("openai_chat", lambda _family: [head, Send(body=body), End()], 1, clock=OnThatDay())
    assert (ran.end, ran.asked) == (end, asked)
