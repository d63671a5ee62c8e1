"""Retry-After in both forms, and everything that only looks like one (X15, X16, wire 6; B32 is among the cases)."""

import json
from datetime import UTC, datetime

import pytest
from models_support import FIXTURES

from semel.adapters.models.openai_errors import OPENAI_ERRORS, refusal
from semel.adapters.models.retry_after import LONGEST_MS, http_date_ms, retry_after_ms
from semel.adapters.models.server_error import failed
from semel.ports.model import Exchange

TABLE = json.loads((FIXTURES / "retry_after_cases.json").read_text())


def test_all_26_cases_of_the_table():
    now_ms = TABLE["now"] * 1000
    passed = 0
    for case in TABLE["cases"]:
        expected, value = case["expect_seconds"], retry_after_ms(case["headers"], now_ms)
        if expected == "clamp":
            assert value == LONGEST_MS
        elif expected == "date":
            complete = not case["why"].startswith("no GMT")
            assert value == (datetime(2026, 9, 22, 13, 33, 50, tzinfo=UTC).timestamp() * 1000 - now_ms if complete else None), (
                case
            )
        else:
            assert value == (None if expected is None else expected * 1000), case
        passed += 1
    print(f"{passed} of 26")
    assert passed == 26


def told(status, body: bytes, headers: dict, now_ms: int):
    error, exchange = refusal(status, headers, body), Exchange(http_status=status)
    return failed(error, exchange, table=OPENAI_ERRORS, where="s", headers=headers, now_ms=now_ms)


@pytest.mark.parametrize(
    ("words", "wait_ms"),
    [
        ("Please try again in 6.57s.", 6570),
        ("try again in 20ms", 20),
        ("try again in 0.0001s", 1),
        ("try again in 3 minutes", None),
        ("try again in 99999999999s", None),
        ("try again later", None),
    ],
)
def test_the_words_of_a_message_are_the_last_resort(words, wait_ms):
    body = json.dumps({"error": {"message": words, "code": "rate_limit_exceeded"}}).encode()
    assert told(429, body, {}, 0).retry_after_ms == wait_ms
    assert told(429, body, {"retry-after": "7"}, 0).retry_after_ms == 7000


def test_a_hint_is_never_shortened():
    assert retry_after_ms({"retry-after": "0.0004"}, 0) == 1
    assert retry_after_ms({"retry-after-ms": "1.2"}, 0) == 2


def test_a_date_counts_from_the_servers_own_clock():
    headers = {"retry-after": "Mon, 21 Sep 2026 14:13:50 GMT", "date": "Mon, 21 Sep 2026 14:13:20 GMT"}
    assert retry_after_ms(headers, 0) == 30_000


@pytest.mark.parametrize(
    "text", ["Mon, 31 Feb 2026 10:00:00 GMT", "Mon, 21 Sep 2026 25:00:00 GMT", "Mon, 21 Sep 0000 10:00:00 GMT", "x"]
)
def test_an_impossible_date_is_no_date(text):
    assert http_date_ms(text, 0) is None


def test_a_two_digit_year_far_ahead_belongs_to_the_past_century():
    now_ms = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    parsed = http_date_ms("Sunday, 06-Nov-94 08:49:37 GMT", now_ms)
    assert datetime.fromtimestamp(parsed / 1000, UTC).year == 1994
