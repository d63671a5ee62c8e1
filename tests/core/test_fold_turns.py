"""Turns that are folded as wholes are folded like their records one by one, or not at all (decision 0030)."""

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
from msgspec import Struct, defstruct
from msgspec.structs import fields, replace

from semel.core import fold as folding
from semel.core import fold_turn
from semel.core.features import needed
from semel.core.fold import apply, fold
from semel.core.keys import batch_id_of
from semel.core.records import (
    Entry,
    HookNote,
    ModelAttemptFinished,
    ModelStepFinished,
    Record,
    RunPaused,
    RunStarted,
    StepStarted,
    ToolBatchFinished,
    ToolBatchStarted,
)
from semel.core.state import Logged, Session
from semel.core.values import AssistantMessage, Effect, Money, Opaque, UserMessage
from tests.core.machine import LINEAGE, Script, call, say, tool, whole_run
from tests.core.samples import sample

TOOLS = [tool("read", Effect.READ), tool("pay"), tool("put")]
ANSWERS = [
    call("read", "pay"),
    call("pay"),
    call("read", "read"),
    call("pay", "put"),
    call("pay", "put"),
    call("read"),
    say("done"),
]
NAMED = {"run_id", "episode", "step_id", "batch_id", "tool_call_id", "call_key", "args_digest", "ordinal", "result_entry"}
"""Fields by which a record says what it belongs to; an inserted one belongs to the turn that it stands in."""


class Log(NamedTuple):
    """Records where they stand."""

    records: list[Record]
    fence: tuple[int, ...]
    torn: int = -1

    def logged(self) -> list[Logged]:
        return [
            Logged(
                seq=at + 1,
                at_ms=at // 3,
                fence=fence,
                record=record,
                torn=at == self.torn,
                requires=needed(record),
            )
            for at, (record, fence) in enumerate(zip(self.records, self.fence, strict=True))
        ]


def of(records: Sequence[Record], torn: int = -1) -> Log:
    return Log(list(records), (1,) * len(records), torn)


def priced(records: Sequence[Record], currencies: Sequence[str | None]) -> list[Record]:
    """The records whose answers cost something in these currencies, in turn."""
    left = iter(currencies)
    return [_priced(one, next(left)) if isinstance(one, ModelStepFinished) else one for one in records]


def _priced(answered: ModelStepFinished, currency: str | None) -> ModelStepFinished:
    cost = None if currency is None else Money(micros=3, currency=currency)
    return replace(answered, usage=replace(answered.usage, cost=cost))


def with_opaque_state(record: Any) -> Any:
    """The answer that begins with state of its provider."""
    content = record.assistant_message.content
    content = replace(content, blocks=(Opaque(format="anthropic.thinking", data="{}"), *content.blocks))
    return replace(record, assistant_message=replace(record.assistant_message, content=content))


@cache
def base(kind: str) -> tuple[Record, ...]:
    """A run of six turns with calls, and one without: plain, with prices, or with provider state in its first answer."""
    records = [one.record for one in whole_run(Script(answers=ANSWERS, tools=TOOLS)).logged() if one.record is not None]
    if kind == "priced":
        records = priced(records, ["EUR"] * len(ANSWERS))
    if kind == "opaque":
        at = next(at for at, one in enumerate(records) if isinstance(one, ModelStepFinished))
        records[at] = with_opaque_state(records[at])
    return tuple(records)


def untold(kind: str) -> list[Record]:
    """The base without what is only informational."""
    return [one for one in base(kind) if not isinstance(one, ModelAttemptFinished)]


BASES = ("plain", "priced", "opaque")


def one_by_one(log: Sequence[Logged], state: Session) -> Session:
    for logged in log:
        state = apply(state, logged)
    return state


def outcome(folded: Callable[[Sequence[Logged], Session], Session], log: Log) -> object:
    """The state that a log comes to, or how it is refused."""
    try:
        return folded(log.logged(), Session(session="s", lineage=LINEAGE))
    except Exception as error:
        return type(error), str(error)


def others(value: Any, kind: Any = None) -> Iterator[Any]:
    """Values of a field of this kind that are near to this one."""
    match value:
        case bool():
            yield not value
        case int():
            yield from {value + 1, value - 1, 0} - {value}
        case str() if type(value) is not str:
            yield from (member for member in type(value) if member is not value)
        case str():
            yield from (f"{value}x", "")
        case Struct():
            yield from changed(value)
        case None | () if kind is not None:
            yield sample(_one_field(kind), full=True).value
        case tuple():
            yield from ((), (*value, *value[-1:]), value[::-1])
            for at, item in enumerate(value):
                yield from ((*value[:at], other, *value[at + 1 :]) for other in others(item))


@cache
def _one_field(kind: Any) -> Any:
    return defstruct("One", [("value", kind)])


def changed(record: Any) -> Iterator[Any]:
    """The structure with one field of it changed, in each way that is tried."""
    for field in fields(record):
        before = getattr(record, field.name)
        for other in (*others(before, field.type), *((None,) if field.default is None else ())):
            if other != before:
                yield replace(record, **{field.name: other})


def belonging(kind: type, turn: Sequence[Record], *, full: bool) -> Any:
    """A record of this type that names what the turn names."""
    made = sample(kind, full=full)
    known: dict[str, Any] = {"ordinal": 0}
    for record in turn:
        known |= {name: getattr(record, name) for name in NAMED if hasattr(record, name)}
    known["episode"] = known["run_id"]
    return replace(made, **{field.name: known[field.name] for field in fields(made) if field.name in known})


def edits(kind: str) -> Iterator[tuple[str, Log]]:
    """The base with one change in its third turn, which begins with the start of its step and ends with that of the next."""
    records = list(base(kind))
    starts = [at for at, record in enumerate(records) if isinstance(record, StepStarted)]
    first, end = starts[2], starts[3] + 1
    yield "nothing", of(records)
    for at in range(first, end):
        front, one, rest = records[:at], records[at], records[at + 1 :]
        for other in changed(one):
            yield f"changed {type(one).__name__}", of([*front, other, *rest])
        yield "left out", of([*front, *rest])
        yield "twice", of([*front, one, one, *rest])
        yield "swapped", of([*front, *rest[:1], one, *rest[1:]])
        yield "cut", of([*front, one])
        yield "torn", of(records, torn=at)
        yield "later tenure", Log(records, (1,) * at + (2,) * (len(records) - at))
        for more in Record.__args__:
            for full in (False, True):
                yield f"with {more.__name__}", of([*front, belonging(more, records[first : end - 1], full=full), one, *rest])
    yield from special(records, first)


def special(records: list[Record], first: int) -> Iterator[tuple[str, Log]]:
    """What takes more than one change."""
    begun, answered = records[first], records[first + 2]
    assert isinstance(begun, StepStarted)
    assert isinstance(answered, ModelStepFinished)
    again = [*records[: first + 1], replace(begun, attempt=2), *records[first + 1 :]]
    yield "attempt of a later tenure", Log(again, (1,) * (first + 1) + (2,) * (len(again) - first - 1))
    paused = RunPaused(run_id=begun.run_id, reason="restart")
    last = max(at for at, one in enumerate(records) if isinstance(one, StepStarted))
    yield "paused", of([*records[: first + 1], paused, *records[first + 1 : last + 1]])
    hook = HookNote(phase="pre_tool", hook="h", verdict="changed", ordinal=0, changed='{"n":7}')
    yield "arguments changed by a hook", of([*records[: first + 2], replace(answered, hooks=(hook,)), *records[first + 3 :]])
    for content in (answered.assistant_message.content, UserMessage(text="other")):
        known = Entry(entry_id=begun.result_entry, content=content)
        started = records[0]
        assert isinstance(started, RunStarted)
        yield "known entry", of([replace(started, entries=(*started.entries, known)), *records[1:]])
    strange = Entry(entry_id=begun.result_entry, content=UserMessage(text="not an answer"))
    yield "no answer", of([*records[: first + 2], replace(answered, assistant_message=strange), *records[first + 3 :]])
    silent = replace(answered, assistant_message=Entry(entry_id=begun.result_entry, content=AssistantMessage(blocks=())))
    batch_id = batch_id_of(LINEAGE, begun.run_id, begun.step_id)
    plan = ToolBatchStarted(run_id=begun.run_id, batch_id=batch_id, step_id=begun.step_id, planned_calls=())
    end = first + 1 + next(at for at, one in enumerate(records[first:]) if isinstance(one, ToolBatchFinished))
    yield "no calls", of([*records[: first + 2], silent, plan, *records[end - 1 :]])
    yield "an answer behind the run", of([*records, answered])
    for currencies in (["EUR", None, "EUR", "USD"], [None, None, "EUR", None, "USD"], [None, None, "EUR", "USD"]):
        yield "two currencies", of(priced(records, [*currencies, None, None, None]))


@cache
def cases() -> Sequence[tuple[str, Log, object]]:
    """All edits, each with what its log comes to record by record."""
    return [(f"{kind}: {name}", log, outcome(one_by_one, log)) for kind in BASES for name, log in edits(kind)]


def differences() -> Iterator[str]:
    """The edits whose log folds otherwise as a whole than record by record."""
    return (name for name, log, expected in cases() if outcome(fold, log) != expected)


class Counting:
    """Folds turns, and counts those that it folded at once, with what it found when it was asked."""

    def __init__(self, at_once: Callable[..., int] = fold_turn.fold_turns) -> None:
        self.found: list[tuple[int, int]] = []
        self._at_once = at_once

    def __call__(self, state: Session, places: Any, records: Any, at: int) -> int:
        before = state.model_steps
        end = self._at_once(state, places, records, at)
        self.found.append((before, state.model_steps - before))
        return end

    @property
    def turns(self) -> int:
        return sum(turns for _, turns in self.found)


def test_a_log_folds_as_a_whole_as_it_folds_record_by_record_whatever_one_change_is_made_to_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counting = Counting()
    monkeypatch.setattr(folding, "fold_turns", counting)
    assert list(differences()) == []
    refused = sum(isinstance(expected, tuple) for _, _, expected in cases())
    print(f"{len(cases())} logs, {refused} of them refused, {counting.turns} turns folded at once")
    assert len(cases()) >= 3_000
    assert len(cases()) // 5 <= refused <= len(cases()) * 4 // 5
    assert counting.turns >= len(cases())


def at_once_in(log: Log) -> list[tuple[int, int]]:
    """Of each answer that a fold came to: how many there were before, and how many turns it folded at once from there."""
    with pytest.MonkeyPatch.context() as patch:
        counting = Counting(folding.fold_turns)
        patch.setattr(folding, "fold_turns", counting)
        outcome(fold, log)
    return counting.found


def test_all_turns_of_a_run_but_its_first_and_its_last_are_folded_at_once() -> None:
    """The first answer sets what later requests are compared with; behind the last one no step begins."""
    for kind in BASES:
        assert at_once_in(of(base(kind))) == [(0, 0), (1, 5), (6, 0)]
        assert at_once_in(of(untold(kind))) == [(0, 0), (1, 5), (6, 0)]


def with_one_condition_less() -> Iterator[tuple[str, str]]:
    """The module without one operand of a condition, or without a condition that has none; and which that is."""
    source = inspect.getsource(fold_turn)
    for place, node in enumerate(ast.walk(ast.parse(source))):
        match node:
            case ast.BoolOp(values=values):
                operands = range(len(values))
            case ast.If(test=test) if not isinstance(test, ast.BoolOp):
                operands = range(1)
            case _:
                continue
        for operand in operands:
            tree = ast.parse(source)
            less = list(ast.walk(tree))[place]
            if isinstance(less, ast.BoolOp):
                left_out = ast.unparse(less.values.pop(operand))
            else:
                assert isinstance(less, ast.If)
                left_out, less.test = f"if {ast.unparse(less.test)}", ast.Constant(value=False)
            yield left_out, ast.unparse(ast.fix_missing_locations(tree))


def test_canary_each_condition_that_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a log that folds otherwise, or by turns that are not folded at once any more."""
    left, tried, logs = list[str](), 0, [of(base("plain")), of(base("priced")), of(untold("plain"))]
    ever = [at_once_in(log) for log in logs]
    for name, source in with_one_condition_less():
        made: dict[str, Any] = {"__name__": fold_turn.__name__}
        exec(compile(source, name, "exec"), made)  # the planted fault
        monkeypatch.setattr(folding, "fold_turns", made["fold_turns"])
        tried += 1
        if next(differences(), None) is None and [at_once_in(log) for log in logs] == ever:
            left.append(name)
    print(f"{tried} conditions left out, one at a time; not noticed: {left}")
    assert left == []
    assert tried >= 45


def test_canary_a_torn_write_that_is_folded_at_once_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = folding.fold_placed

    def blind(places: Any, records: Any, state: Session, *, torn: bool) -> Session:
        return whole(places, records, state, torn=torn and len(records) == 1)

    monkeypatch.setattr(folding, "fold_placed", blind)
    assert set(differences()) >= {"plain: torn"}
