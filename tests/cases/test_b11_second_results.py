"""B11: the first result of a call wins, a later one is recorded and not sent, no compaction cuts a call from its result."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

from semel.core.effects import Decision
from semel.core.pairing import Rule, fault_of
from semel.core.records import CompactionViewApplied, Entry, ToolResult
from semel.core.values import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from semel.errors import CorruptLog, KeyReuse
from tests.core.cast import driver
from tests.core.machine import call, good, say
from tests.core.said import shown
from tests.core.writes import logged_of

RECORDS = json.loads((Path(__file__).parent / "histories" / "B11-history.json").read_text())["records"]


def supplied() -> list[Message]:
    """The recorded history as it would be sent if nobody looked."""
    said: list[Message] = [UserMessage(text="start")]
    for record in RECORDS:
        if "assistant" in record:
            calls = tuple(ToolCall(id=c["id"], name=c["tool"], arguments="{}") for c in record["assistant"]["calls"])
            said.append(AssistantMessage(blocks=calls))
        elif "result" in record:
            said.append(ToolMessage(tool_call_id=record["result"]["for"], text=record["result"]["text"]))
        elif "user" in record:
            said.append(UserMessage(text=record["user"]))
    return said


def test_b11_the_recorded_history_is_refused_at_its_first_duplicate_and_then_at_its_orphan() -> None:
    said = supplied()
    fault = fault_of(said)
    assert fault is not None
    assert (fault.rule, fault.at) == (Rule.SECOND_RESULT, 4)
    without = [*said[:4], *said[6:]]
    fault = fault_of(without)
    assert fault is not None
    assert (fault.rule, fault.at) == (Rule.RESULT_WITHOUT_CALL, 4)
    assert fault_of([*without[:4], *without[5:]]) is None


def test_b11_the_log_takes_no_second_result_of_a_call() -> None:
    d = driver()
    d.send()
    d.answer(call("read", "put"))
    d.back({0: good("one")})
    batch = d.state.run.step.batch  # type: ignore[union-attr]  # the calls are out
    again = ToolResult(
        batch_id=batch.batch_id if batch else "", ordinal=0, tool_call_id="read-0", is_error=False, outcome="completed"
    )
    d.back({1: good("two")})
    with pytest.raises(CorruptLog):
        d._do(Decision(records=(again,)))


def test_b11_a_late_result_of_a_call_that_a_cancel_closed_is_kept_and_no_model_is_told() -> None:
    d = driver()
    d.send()
    d.answer(call("pay", "read"))
    d.back({1: good()}, held=[0])
    key = d.key_of(0)
    d.cancel("now")
    d.seal()
    d.deliver(key, "two (late, from a tool that ignored the cancel)")
    head = d.state.head
    d.deliver(key, "two (late, from a tool that ignored the cancel)")
    assert d.state.head == head
    with pytest.raises(KeyReuse, match="first one stands"):
        d.deliver(key, "something else")
    d.send("k2", "go on")
    assert not [message for message in d.sent[-1] if "late, from a tool" in message.text]
    assert key in d.state.late


def view(version: int, end: int, text: str) -> CompactionViewApplied:
    entry = Entry(entry_id=f"v{version}", content=UserMessage(text=text))
    return CompactionViewApplied(
        version=version, start=0, end=end, replacement=(entry,), applied="as_published", digest=str(version)
    )


def test_b11_two_compactions_in_sequence_keep_calls_and_results_together() -> None:
    d = driver()
    d.send()
    d.answer(call("read", "put"))
    d.back()
    d.answer(say("one"))
    d.send("k2", "more")
    d.answer(call("read"))
    d.back()
    d.answer(say("two"))
    length = len(d.state.transcript)
    cuts = []
    for inner in range(length + 1):
        for outer in range(inner, length + 1):
            with suppress(CorruptLog):
                after = _compacted(d, inner, outer)
                cuts.append((inner, outer))
                assert fault_of([*after, UserMessage(text="go on")]) is None
    print(f"two compactions: {len(cuts)} pairs of cuts taken, the others refused")
    assert (4, 8) in cuts
    assert not [pair for pair in cuts if 2 in pair or 3 in pair]  # between the calls and their results


def _compacted(d: object, inner: int, outer: int) -> list[Message]:
    from semel.core.fold import ahead

    state = d.state  # type: ignore[attr-defined]  # a driver
    after = ahead(state, (view(1, inner, "inner summary"), view(2, outer, "outer summary")))
    return shown(after, logged_of(d.writes))  # type: ignore[attr-defined]  # a driver
