"""Legal histories about what the model sees: typed output, supplied history, compaction."""

from typing import Any

from semel.core.effects import Decision
from semel.core.records import (
    BudgetFired,
    CeilingPolicy,
    CompactionAnswer,
    CompactionMessage,
    CompactionNotice,
    CompactionRequest,
    CompactionViewApplied,
    ContextCeilingDecided,
    ContextCeilingWait,
    Entry,
    ViewOutcome,
)
from semel.core.values import AssistantMessage, Text, ToolCall, ToolMessage, UserMessage
from tests.core.cast import driver
from tests.core.driver import Driver
from tests.core.machine import call, say


def typed_output() -> Driver:
    d = driver(output_schema='{"type":"object","properties":{"n":{"type":"integer"}}}')
    d.send()
    d.answer(say("seventeen"))
    d.message("s1", "as a number", "steer")
    d.answer([ToolCall(id="x", name="submit_output", arguments='{"n":"17"}')])
    d.answer([ToolCall(id="y", name="submit_output", arguments='{"n":17}'), *call("read")])
    d.back()
    return d


def supplied() -> Driver:
    d = driver()
    d.supply(
        [
            UserMessage(text="what is in a.txt?"),
            AssistantMessage(blocks=(Text(text="let me see"), ToolCall(id="read-0", name="read", arguments="{}"))),
            ToolMessage(tool_call_id="read-0", text="hello"),
            AssistantMessage(blocks=(Text(text="hello"),)),
        ]
    )
    d.send("k1", "and in b.txt?")
    d.answer(call("read"))
    d.back()
    d.answer(say("nothing"))
    return d


def entry(name: str, content: Any) -> Entry:
    return Entry(entry_id=name, content=content)


def compacted() -> Driver:
    d = driver()
    first = CompactionMessage(
        reason="setup",
        version=1,
        start=0,
        end=0,
        replacement=(entry("setup", UserMessage(text="You have a memory.")),),
        ceiling=CeilingPolicy(wait_ms=1000),
    )
    d._do(Decision(records=(first,)))
    d.send()
    d.answer(call("read", "put"))
    d.back()
    d.answer(say("one"))
    summary = (entry("v2", UserMessage(text="Summary: two files were read.")),)
    advance = CompactionNotice(notice_seq=1, headers={"coverage": "4"})
    view = CompactionViewApplied(
        version=2, start=0, end=4, replacement=summary, applied="as_published", digest="d", estimate_tokens=12
    )
    done = CompactionNotice(notice_seq=2, headers={}, view=ViewOutcome(version=2, outcome="applied"))
    d._do(Decision(records=(advance, view, done)))
    d.send("k2", "and now?")
    run_id = d.state.run.run_id  # type: ignore[union-attr]  # it was just started
    budget = BudgetFired(
        run_id=run_id, step_id=1, budget="tokens", used=8, limit=10, notice=entry("b", UserMessage(text="Hurry."))
    )
    d._do(Decision(records=(budget,)))
    d.answer(call("read"))
    d.back()
    wait = ContextCeilingWait(run_id=run_id, step_id=2, deadline_ms=99)
    ride = ContextCeilingWait(run_id=run_id, step_id=2, deadline_ms=99, unavailable=False)
    go = ContextCeilingDecided(run_id=run_id, step_id=2, detail=None)
    ask = CompactionRequest(run_id=run_id, step_id=2, request_id="c1", reason="threshold", start=0, end=5, deadline_ms=5)
    reply = CompactionAnswer(request_id="c1", answer="message")
    third = CompactionMessage(
        reason="threshold",
        version=3,
        start=0,
        end=6,
        replacement=(entry("v3", UserMessage(text="Summary: all of it.")),),
        request_id="c1",
    )
    d._do(Decision(records=(wait, ride, go, ask, reply)))
    d.answer(say("two"))
    d._do(Decision(records=(third,)))
    d.send("k3", "more?")
    d.answer(say("three"))
    return d
