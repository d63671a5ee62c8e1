"""Legal histories, each played to its end: the scripts of the prefix property, of the corruption tests and of `explain`."""

from collections.abc import Callable

from semel.core.values import ToolCall
from tests.core import scripts_calls, scripts_context, scripts_gated, scripts_pauses, scripts_rules
from tests.core.cast import driver
from tests.core.driver import Driver
from tests.core.machine import call, good, say, unknown


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


Script = Callable[[], Driver]
SCRIPTS: dict[str, Script] = {
    play.__name__: play
    for play in (
        text,
        parallel,
        refusals,
        steer,
        follow_up,
        next_run,
        interrupt,
        cancel_now,
        cancel_while_asking,
        cancel_at_boundary,
        cancel_escalated,
        early_return,
        two_runs,
        scripts_calls.approval,
        scripts_calls.approval_cancelled,
        scripts_calls.deferred,
        scripts_calls.deferred_beyond_its_run,
        scripts_calls.held,
        scripts_calls.held_in_sequence,
        scripts_calls.held_and_cancelled,
        scripts_calls.held_and_stopped,
        scripts_calls.held_beside_an_unknown,
        scripts_calls.verdict_and_continue,
        scripts_calls.late_verdict,
        scripts_calls.reconciled,
        scripts_context.typed_output,
        scripts_context.supplied,
        scripts_context.compacted,
        scripts_gated.gated,
        scripts_gated.opaque_voided,
        scripts_pauses.key_refused,
        scripts_pauses.handed_over,
        scripts_pauses.stopped_at_work,
        scripts_pauses.stopped_and_died,
        scripts_rules.hooked,
        scripts_rules.warned,
        scripts_rules.ended_by_condition,
    )
}
