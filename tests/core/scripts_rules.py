"""Histories with rules, hooks and budgets."""

from msgspec.structs import replace

from semel.core.hook_notes import HookNote, ToolOutput
from semel.core.limits import Limits
from semel.core.rules import Rule, Rulebook
from semel.core.turn_view import TurnView
from tests.core.cast import driver
from tests.core.driver import Driver
from tests.core.machine import call, good, say


def hooked() -> Driver:
    """Hooks change two calls, deny one and fail at one; a person is asked about what one left, and changes it again."""
    d = driver(policy=Rulebook(agent=[Rule("deny", "put"), Rule("ask", "pay", when="n > 40", expires=9)]))
    d.send()
    notes = (
        HookNote(phase="pre_tool", hook="cap", verdict="changed", ordinal=0, changed='{"n":50}'),
        HookNote(phase="pre_tool", hook="cap", verdict="changed", ordinal=1, changed='{"n":7}'),
        HookNote(phase="pre_tool", hook="guard", verdict="denied", ordinal=2, message="Not on a Friday."),
        HookNote(phase="pre_tool", hook="guard", verdict="failed", ordinal=3, message="KeyError: 'n'"),
    )
    d.answer(call("pay", "read", "pay", "read", "put"), hooks=notes)
    assert d.state.run is not None
    assert d.state.run.step is not None
    (asked,) = d.state.run.step.undecided
    d.answer_approval(asked.call_key, "approved", '{"n":41}')
    note = HookNote(phase="post_tool", hook="hide", verdict="changed", output=ToolOutput(text="card 4711"))
    d.back({1: replace(good("card ****"), hooks=(note,))})
    d.back()
    d.answer(say("done"))
    return d


def warned() -> Driver:
    """Three budgets run low at the same turn, and one of them ends the run."""
    d = driver(limits=Limits(steps=5, tokens=55, repeated_calls=5))
    d.send()
    while d.state.run is not None:
        d.answer(call("read"))
        d.back()
    return d


def ended_by_condition() -> Driver:
    def paid(turn: TurnView) -> bool:
        return any(one.tool == "pay" for one in turn.calls)

    d = driver(policy=Rulebook(stop_after_turn=paid))
    d.send()
    d.message("s1", "one more thing", "steer")
    d.answer([*say("Paying."), *call("pay", "read")])
    d.back()
    return d
