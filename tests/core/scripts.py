"""Legal histories, each played to its end: the scripts of the prefix property, of the corruption tests and of `explain`."""

from collections.abc import Callable
from typing import Any

from semel.core.effects import Decision
from semel.core.policy import Ask, Policy, Ruling
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
from semel.core.values import JSON, AssistantMessage, Effect, Text, ToolCall, ToolMessage, ToolSpec, UserMessage
from tests.core.driver import Driver
from tests.core.machine import call, good, say, tool, unknown

READ, PUT, PAY = tool("read", Effect.READ), tool("put", Effect.IDEMPOTENT), tool("pay")
ASKED, DEPLOY, DEAF = tool("refund", reconciles=True), tool("deploy", sequential=True), tool("wire", interruptible=False)
TOOLS = (READ, PUT, PAY, ASKED, DEPLOY, DEAF)


def asks_for(*names: str) -> Policy:
    """A policy that asks a person about these tools."""

    def ruling(spec: ToolSpec, _arguments: dict[str, JSON]) -> Ruling:
        from semel.core.policy import Allow

        return Ask(rule=f"ask {spec.name}", expires_at_ms=9000) if spec.name in names else Allow()

    return ruling


def driver(**options: Any) -> Driver:
    return Driver(tools=TOOLS, **options)


def text() -> Driver:
    d = driver()
    d.send()
    d.answer(say("hello"))
    return d


def parallel() -> Driver:
    d = driver()
    d.send()
    d.answer(call("read", "pay", "put"))
    d.back()
    d.answer(say("done"))
    return d


def refusals() -> Driver:
    d = driver()
    d.send()
    d.answer([ToolCall(id="a", name="ghost", arguments="{}"), ToolCall(id="b", name="pay", arguments="[1]"), *call("read")])
    d.back()
    d.answer(call("ghost"))
    d.answer(say("done"))
    return d


def steer() -> Driver:
    d = driver()
    d.send()
    d.answer(call("pay"))
    d.message("s1", "use gamma instead", "steer")
    d.back()
    d.message("s2", "and delta", "steer")
    d.answer(say("gamma it is"))
    d.answer(say("and delta"))
    return d


def follow_up() -> Driver:
    d = driver()
    d.send()
    d.message("f1", "then tidy up", "follow_up")
    d.message("s1", "hurry", "steer")
    d.answer(say("first"))
    d.answer(say("hurried"))
    d.answer(say("tidied"))
    return d


def next_run() -> Driver:
    d = driver()
    d.send()
    d.message("q1", "second", "queue")
    d.message("q2", "third", "queue")
    d.message("q3", "never", "queue")
    d.retract("q3")
    d.answer(say("one"))
    d.drain()
    d.answer(say("two"))
    d.drain()
    d.answer(say("three"))
    return d


def interrupt() -> Driver:
    d = driver()
    d.send()
    d.message("q1", "afterwards", "queue")
    d.answer(call("read", "wire"))
    d.message("i1", "stop that, do this", "interrupt")
    d.back({0: good()})
    d.back({1: good()})
    d.drain()
    d.answer(say("this"))
    d.drain()
    d.answer(say("afterwards"))
    return d


def cancel_now() -> Driver:
    d = driver()
    d.send()
    d.answer(call("deploy", "read"))
    d.message("s1", "wait", "steer")
    d.cancel("now")
    d.back()
    d.send("k2", "again")
    d.answer(say("hello again"))
    return d


def cancel_while_asking() -> Driver:
    d = driver()
    d.send()
    d.message("s1", "wait", "steer")
    d.cancel("now")
    d.seal()
    d.send("k2", "again")
    d.answer(say("hello again"))
    return d


def cancel_at_boundary() -> Driver:
    d = driver()
    d.send()
    d.message("f1", "then tidy up", "follow_up")
    d.cancel("step_boundary")
    d.message("s1", "too late for this run", "steer")
    d.answer(call("pay", "read"))
    d.back()
    d.drain()
    d.answer(say("in a run of its own"))
    return d


def cancel_escalated() -> Driver:
    d = driver()
    d.send()
    d.answer(call("read", "pay"))
    d.cancel("step_boundary")
    d.cancel("now")
    d.back({0: good(), 1: unknown()})
    d.seal()
    return d


def approval() -> Driver:
    d = driver(policy=asks_for("pay"))
    d.send()
    d.answer(call("pay", "read", "pay"))
    first, second = [asked.call_key for asked in d.state.run.step.undecided]  # type: ignore[union-attr]  # it waits
    d.answer_approval(second, "denied")
    d.answer_approval(first, "approved", arguments='{"n":17}')
    d.back()
    d.answer(call("pay"))
    d.expire(9000)
    d.answer(say("done"))
    return d


def approval_cancelled() -> Driver:
    d = driver(policy=asks_for("pay"))
    d.send()
    d.answer(call("read", "pay"))
    d.cancel("step_boundary")
    d.seal()
    d.send("k2", "again")
    d.answer(say("hello again"))
    return d


def deferred() -> Driver:
    d = driver()
    d.send()
    d.answer(call("pay", "read"))
    key = d.key_of(0)
    d.back({1: good()}, deferred=[0])
    d.answer(call("read"))
    d.deliver(key, "it is paid")
    d.back()
    d.answer(say("done"))
    return d


def deferred_beyond_its_run() -> Driver:
    d = driver()
    d.send()
    d.answer(call("pay"))
    key = d.key_of(0)
    d.back(deferred=[0])
    d.answer(say("waiting for the bank"))
    d.deliver(key, "the bank said no", is_error=True)
    d.send("k2", "and?")
    d.answer(say("no"))
    return d


def held() -> Driver:
    d = driver()
    d.send()
    d.answer(call("read", "pay", "put"))
    d.back({2: good()}, held=[1])
    d.back({0: good()})
    d.deliver(d.key_of(1), "paid after all")
    d.answer(say("done"))
    return d


def held_in_sequence() -> Driver:
    d = driver()
    d.send()
    d.answer(call("deploy", "pay", "read"))
    d.back({0: good()})
    d.back(held=[1])
    d.message("s1", "still there?", "steer")
    d.deliver(d.key_of(1), "paid")
    d.back({2: good()})
    d.answer(say("done"))
    return d


def held_and_cancelled() -> Driver:
    d = driver()
    d.send()
    d.answer(call("pay", "read"))
    d.back({1: good()}, held=[0])
    key = d.key_of(0)
    d.cancel("step_boundary")
    d.seal()
    d.deliver(key, "too late")
    d.send("k2", "again")
    d.answer(say("hello again"))
    return d


def held_and_stopped() -> Driver:
    d = driver()
    d.send()
    d.answer(call("deploy", "pay"))
    d.back(held=[0])
    d.stop()
    return d


def held_beside_an_unknown() -> Driver:
    d = driver()
    d.send()
    d.answer(call("pay", "pay"))
    d.back(held=[0])
    d.back({1: unknown()})
    d.seal()
    return d


def verdict_and_continue() -> Driver:
    d = driver()
    d.send()
    d.answer(call("pay", "read"))
    d.message("q1", "next", "queue")
    d.back({0: unknown(), 1: good()})
    d.seal()
    key = d.state.unknown[0].call_key
    d.resolve(key, "happened", "paid 17")
    d.go_on(key)
    d.answer(say("so it is paid"))
    d.drain()
    d.answer(say("next"))
    return d


def late_verdict() -> Driver:
    d = driver()
    d.send()
    d.answer(call("pay"))
    d.back({0: unknown()})
    d.seal()
    key = d.state.unknown[0].call_key
    d.send("k2", "are you there?")
    d.answer(say("I do not know"))
    d.resolve(key, "did_not_happen")
    d.send("k3", "now?")
    d.answer(say("not paid"))
    return d


def reconciled() -> Driver:
    d = driver()
    d.send()
    d.answer(call("refund", "read", "refund"))
    d.die()
    d.resume()
    d.asked(good("was done"))
    d.asked(good("was done too"))
    d.back()
    d.answer(say("done"))
    return d


def early_return() -> Driver:
    d = driver()
    d.send()
    d.answer(call("read", "pay", "put"))
    d.back({2: good()})
    d.back({0: good()})
    d.back({1: good()})
    d.answer(say("done"))
    return d


def two_runs() -> Driver:
    d = driver()
    d.send()
    d.answer(call("read"))
    d.back()
    d.answer(say("one"))
    d.send("k2", "again")
    d.answer(call("pay", "read"))
    d.back()
    d.answer(say("two"))
    return d


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
    d._do(Decision(records=(first,)), keep=True)
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
    d._do(Decision(records=(advance, view, done)), keep=True)
    d.send("k2", "and now?")
    run_id = d.state.run.run_id  # type: ignore[union-attr]  # it was just started
    budget = BudgetFired(
        run_id=run_id, step_id=1, budget="tokens", used=8, limit=10, notice=entry("b", UserMessage(text="Hurry."))
    )
    d._do(Decision(records=(budget,)), keep=True)
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
    d._do(Decision(records=(wait, ride, go, ask, reply)), keep=True)
    d.answer(say("two"))
    d._do(Decision(records=(third,)), keep=True)
    d.send("k3", "more?")
    d.answer(say("three"))
    return d


Script = Callable[[], Driver]
SCRIPTS: dict[str, Script] = {
    play.__name__: play
    for play in (
        *(text, parallel, refusals, steer, follow_up, next_run, interrupt, cancel_now, cancel_while_asking, cancel_at_boundary),
        *(cancel_escalated, approval, approval_cancelled, deferred, deferred_beyond_its_run, held, held_in_sequence),
        *(held_and_cancelled, held_and_stopped, held_beside_an_unknown, verdict_and_continue, late_verdict, reconciled),
        *(early_return, two_runs, typed_output, supplied, compacted),
    )
}
