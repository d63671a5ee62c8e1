"""Damaged streams and odd conversations: no crash, no answer without a terminal event (V28 to V30)."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import fuzzing
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_support import WIRES

from semel.adapters.models.anthropic_messages.decode import MessagesAnswer
from semel.adapters.models.decoding import EventDecoder
from semel.adapters.models.retry_after import LONGEST_MS, http_date_ms, retry_after_ms
from semel.adapters.models.sse import Parser
from semel.core.limits import backoff_ms

every_family = pytest.mark.parametrize("family", sorted(WIRES))
SAMPLE, ALL = 1_500, 1_000_000


@every_family
def test_damaged_streams_crash_no_decoder_and_are_never_an_answer_without_a_terminal(family):
    tally = fuzzing.fuzz_decoder(family, SAMPLE, seed=1)
    print(f"{family}: {tally}")
    assert sum(tally.values()) == SAMPLE
    assert min(tally.values()) > SAMPLE // 50


@pytest.mark.prove
@pytest.mark.timeout(3600)
@every_family
def test_a_million_damaged_streams(family):
    tally = fuzzing.fuzz_decoder(family, ALL, seed=2)
    print(f"{family}: {tally}")
    assert sum(tally.values()) == ALL


class Trusting(MessagesAnswer):
    """Planted fault: the end of the body ends the answer."""

    def decoded(self):
        self._whole = True
        return super().decoded()


class Fragile(MessagesAnswer):
    """Planted fault: what a server sends is believed to have its shape."""

    def _delta(self, index, delta):
        return super()._delta(index, {**delta, "text": delta.get("text", "") + ""})


@pytest.mark.parametrize("planted", [Trusting, Fragile])
def test_a_planted_fault_is_found_by_the_sample(planted, monkeypatch):
    """Negative controls: a decoder that trusts the end of the body, and one that trusts shapes."""
    wire = WIRES["anthropic_messages"]
    broken = wire._replace(decoder=lambda options: EventDecoder(planted(options)))
    monkeypatch.setitem(WIRES, "anthropic_messages", broken)
    with pytest.raises((AssertionError, AttributeError, TypeError)):
        fuzzing.fuzz_decoder("anthropic_messages", SAMPLE, seed=1)


def test_a_decoder_that_takes_half_an_event_for_the_end_is_found_by_the_sample(monkeypatch):
    """Negative control: the end of the body ends an answer of Gemini, but not in the middle of an event."""
    monkeypatch.setattr(Parser, "pending", b"")
    with pytest.raises(AssertionError):
        fuzzing.fuzz_decoder("gemini", SAMPLE, seed=1)


SEEDS = {"bound": 1, "refused": 2, "control": 1, "unpaired": 1}


@every_family
@pytest.mark.parametrize("name", SEEDS)
def test_the_checked_in_tool_errors_go_through_every_renderer(name, family):
    assert fuzzing.round_trip(family, fuzzing.read_seed(name)) == SEEDS[name]


def test_odd_conversations_are_rendered_alike_step_by_step_and_at_once_and_lose_no_result():
    found = fuzzing.fuzz_requests(150, seed=3)
    print(f"150 conversations in 5 families, {found} results found again")
    assert found > 500


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_many_odd_conversations():
    found = fuzzing.fuzz_requests(20_000, seed=4)
    print(f"20,000 conversations in 5 families, {found} results found again")
    assert found > 50_000


NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SECONDS = st.decimals(min_value=0, max_value=10**30, places=3, allow_nan=False, allow_infinity=False)


def date_forms(when: datetime) -> list[str]:
    day, month = DAYS[when.weekday()], MONTHS[when.month - 1]
    clock = f"{when:%H:%M:%S}"
    return [
        f"{day[:3]}, {when.day:02d} {month} {when.year} {clock} GMT",
        f"{day}, {when.day:02d}-{month}-{when.year % 100:02d} {clock} GMT",
        f"{day[:3]} {month} {when.day:2d} {clock} {when.year}",
    ]


def holds_for_seconds(parse, seconds: Decimal) -> bool:
    """A hint in seconds is read as it is, rounded up to a millisecond, and never shortened or forgotten, however long."""
    read = parse({"retry-after": f"{seconds:f}"}, NOW_MS)
    exact = seconds * 1000
    return read is not None and (read == LONGEST_MS if exact > LONGEST_MS else exact <= read < exact + 1)


def holds_for_dates(parse, ahead: int) -> bool:
    """A date in any of its three forms is the wait until then; the past is no wait."""
    when = NOW + timedelta(seconds=ahead)
    return all(parse({"retry-after": form}, NOW_MS) == max(0, ahead) * 1000 for form in date_forms(when))


@settings(max_examples=256, deadline=None, derandomize=True)
@given(SECONDS, st.integers(-86_400 * 365, 86_400 * 365 * 20), st.integers(0, 5))
def test_v28_a_hint_survives_whatever_its_form_and_no_wait_is_shorter(seconds, ahead, used):
    assert holds_for_seconds(retry_after_ms, seconds)
    assert holds_for_dates(retry_after_ms, ahead)
    hint = retry_after_ms({"retry-after": f"{seconds:f}"}, NOW_MS)
    assert backoff_ms(used, hint) >= hint


@settings(max_examples=256, deadline=None, derandomize=True)
@given(st.text(max_size=60))
def test_v28_whatever_the_header_holds_it_is_a_wait_or_nothing(text):
    read = retry_after_ms({"retry-after": text, "retry-after-ms": text}, NOW_MS)
    assert read is None or 0 <= read <= LONGEST_MS


def deltas_only(headers, now_ms):
    """Planted fault: no dates."""
    text = headers["retry-after"]
    return retry_after_ms(headers, now_ms) if text.replace(".", "").isdigit() else None


def overflow_forgotten(headers, now_ms):
    """Planted fault: what is too long is taken for nothing."""
    read = retry_after_ms(headers, now_ms)
    return None if read == LONGEST_MS else read


def test_v28_a_parser_without_dates_and_one_that_forgets_long_waits_are_caught():
    """Negative controls for the two properties."""
    assert holds_for_dates(retry_after_ms, 60)
    assert not holds_for_dates(deltas_only, 60)
    assert holds_for_seconds(retry_after_ms, Decimal(10**25))
    assert not holds_for_seconds(overflow_forgotten, Decimal(10**25))
    assert http_date_ms("nothing", NOW_MS) is None
