"""Recovery as a table: every call has one class and every class one action; the page says what the table does."""

import runpy
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from semel.core.calls import Batch
from semel.core.fold import fold
from semel.core.records import ResumeStarted, RunFinished, RunPaused, ToolResult
from semel.core.recover import CLASSES, FOUND, Action
from semel.core.standing import CallClass, classify, doubtful
from semel.core.state import Run, Session
from tests.core.cast import asks_for, driver
from tests.core.driver import Died, Driver
from tests.core.machine import LINEAGE, call, good, say, unknown
from tests.core.quiet import quiesce
from tests.core.scripts import SCRIPTS
from tests.core.writes import folded, logged_of

PAGE = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "recovery_table.py"))


def test_the_page_of_recovery_is_that_of_the_tables() -> None:
    page = PAGE["PAGE"].read_text(encoding="utf-8")
    assert page == PAGE["recovery_page"](), "run python scripts/recovery_table.py"
    assert len(CallClass) == 8
    assert set(CLASSES) == set(CallClass)
    assert {row.action for row in CLASSES.values()} == set(Action)
    assert all(what in page for what, *_ in FOUND)


def open_batch(state: Session) -> tuple[Run, Batch] | None:
    run = state.run
    batch = run.step.batch if run is not None and run.step is not None else None
    return (run, batch) if run is not None and batch is not None and not batch.finished else None


def test_every_call_of_every_prefix_has_exactly_one_class_and_every_class_is_met() -> None:
    met: Counter[CallClass] = Counter()
    for play in SCRIPTS.values():
        state = Session(session="s", lineage=LINEAGE)
        for logged in logged_of(play().writes):
            state = fold([logged], state)
            found = open_batch(state)
            if found is None:
                continue
            classes = classify(*found)
            assert len(classes) == len(found[1].calls)
            met.update(classes)
            in_doubt = {at for at, kind in enumerate(classes) if CLASSES[kind].action is Action.FIND_OUT}
            assert in_doubt == doubtful(*found)
    print(dict(met))
    assert set(met) == set(CallClass)


class Case(NamedTuple):
    """A process that died, the classes that its log gives the calls, and what a resume comes to."""

    died: Callable[[Driver], None]
    classes: list[str]
    sends: list[int]
    end: str | None


def batch_of(*names: str) -> Callable[[Driver], None]:
    return lambda d: d.answer(call(*names))


def then(first: Callable[[Driver], None], *more: Callable[[Driver], None]) -> Callable[[Driver], None]:
    def play(d: Driver) -> None:
        for step in (first, *more):
            step(d)

    return play


def torn(kept: int) -> Callable[[Driver], None]:
    def play(d: Driver) -> None:
        d.tear = kept

    return play


def back(*ordinals: int) -> Callable[[Driver], None]:
    return lambda d: d.back({at: good() for at in ordinals})


def held(*ordinals: int) -> Callable[[Driver], None]:
    return lambda d: d.back(held=ordinals)


CASES: dict[str, Case] = {
    "a once call that was sent": Case(batch_of("pay"), ["indeterminate"], [], "interrupted"),
    "a read that was sent": Case(batch_of("read"), ["indeterminate"], [0], None),
    "a once call that came back, and a read that did not": Case(
        then(batch_of("pay", "read"), back(0)), ["returned", "indeterminate"], [1], None
    ),
    "a read that came back, and a once call that did not": Case(
        then(batch_of("read", "pay"), back(0)), ["returned", "indeterminate"], [], "interrupted"
    ),
    "a refused call beside one that was sent": Case(batch_of("ghost", "read"), ["no_dispatch", "indeterminate"], [1], None),
    "a write torn behind the plan": Case(then(torn(3), batch_of("pay", "read")), ["never_left", "never_left"], [0, 1], None),
    "a write torn behind the first intent": Case(
        then(torn(4), batch_of("pay", "read")), ["no_dispatch", "never_left"], [1], None
    ),
    "one at a time: behind the first nothing was sent": Case(
        batch_of("deploy", "pay", "read"), ["indeterminate", "never_sent", "never_sent"], [], "interrupted"
    ),
    "one at a time: a read first, which runs again": Case(batch_of("read", "deploy"), ["indeterminate", "never_sent"], [0], None),
    "one at a time: the first is back": Case(
        then(batch_of("deploy", "read", "pay"), back(0)), ["returned", "indeterminate", "never_sent"], [1], None
    ),
    "a held call": Case(then(batch_of("pay", "read"), held(0), back(1)), ["provider_held", "returned"], [], None),
    "a held call beside a lost one": Case(
        then(batch_of("pay", "pay"), held(0)), ["provider_held", "indeterminate"], [], "interrupted"
    ),
    "a held call beside a lost read": Case(then(batch_of("pay", "read"), held(0)), ["provider_held", "indeterminate"], [1], None),
    "one at a time: behind a held call": Case(
        then(batch_of("deploy", "pay"), held(0)), ["provider_held", "held_successor"], [], None
    ),
    "one at a time: behind a held call that was delivered": Case(
        then(batch_of("deploy", "pay"), held(0), lambda d: d.deliver(d.key_of(0))), ["result", "indeterminate"], [], "interrupted"
    ),
    "one at a time: behind a held call that was delivered, a read": Case(
        then(batch_of("deploy", "read"), held(0), lambda d: d.deliver(d.key_of(0))), ["result", "indeterminate"], [1], None
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_resume_does_with_each_call_what_its_class_says(name: str) -> None:
    case = CASES[name]
    d = driver()
    d.send()
    with suppress(Died):
        case.died(d)
    d.die()
    found = open_batch(d.state)
    assert found is not None
    assert [str(kind) for kind in classify(*found)] == case.classes
    before = Counter(d.dispatched)
    keys = [call.planned.call_key for call in found[1].calls]
    d.resume()
    sent = [at for at, key in enumerate(keys) if d.dispatched[key] > before[key]]
    assert sent == case.sends
    d.seal()
    assert (None if d.state.run else d.state.ended[d.state.newest or ""].reason) == case.end
    quiesce(d)
    assert all(count == 1 for key, count in d.dispatched.items() if d.tool_of[key] in ("pay", "deploy"))


def test_a_resume_names_the_calls_that_it_found_in_doubt_and_leaves_held_ones_out() -> None:
    d = driver()
    d.send()
    d.answer(call("pay", "read"))
    d.back(held=[0])
    keys = [d.key_of(0), d.key_of(1)]
    d.die()
    d.resume()
    resumed = [record for write in d.writes for record in write.records if isinstance(record, ResumeStarted)]
    assert resumed[0].indeterminate == (keys[1],)


def test_a_missing_pause_of_a_held_call_is_written_by_the_resume_and_not_a_second_time() -> None:
    d = driver()
    d.send()
    d.answer(call("pay"))
    d.tear = 1  # the hold is durable, the pause behind it is not
    with pytest.raises(Died):
        d.back(held=[0])
    for _ in range(3):
        d.die()
        d.resume()
    kinds = Counter(type(record) for write in d.writes for record in write.records)
    assert kinds[RunPaused] == 1
    assert kinds[ResumeStarted] == 3
    assert d.dispatched.total() == 1


class Closing(NamedTuple):
    """What leads up to a close-out; and, where a living process does it, what it does. Else a resume does it."""

    before: Callable[[Driver], None]
    live: Callable[[Driver], None] | None = None


CLOSINGS: dict[str, Closing] = {
    "an unknown call": Closing(then(batch_of("pay", "read", "ghost", "put"), back(1), back(3)), lambda d: d.back({0: unknown()})),
    "a lost call": Closing(batch_of("pay", "read")),
    "a lost call beside a held one": Closing(then(batch_of("pay", "pay", "read"), held(0))),
    "a cancelled held call": Closing(then(batch_of("pay", "read"), held(0), back(1), lambda d: d.cancel("step_boundary"))),
    "a held call that is stopped": Closing(then(batch_of("deploy", "pay", "read"), held(0)), lambda d: d.stop()),
    "a cancelled batch": Closing(then(batch_of("deploy", "pay"), lambda d: d.cancel("now")), back(0)),
    "an unknown call of a cancelled batch": Closing(
        then(batch_of("pay", "read"), back(1), lambda d: d.cancel("now")), lambda d: d.back({0: unknown()})
    ),
    "a cancelled approval": Closing(then(batch_of("refund", "ghost"), lambda d: d.cancel("now"))),
}


@pytest.mark.parametrize("name", CLOSINGS)
def test_a_close_out_that_dies_anywhere_is_finished_in_the_same_way_and_nothing_is_written_twice(name: str) -> None:
    """P29: in whichever of its records it dies, and however often. What only a living process knew is in its first record."""
    whole, deaths = _closed(name, None)
    assert deaths == 0
    expected = _outcome(whole)
    first = 1 if CLOSINGS[name].live is not None else 0
    died = 0
    for kept in range(first, 12):
        d, deaths = _closed(name, kept)
        died += deaths
        assert _outcome(d) == expected, f"cut behind {kept} records"
    assert died >= 4


def _closed(name: str, kept: int | None) -> tuple[Driver, int]:
    closing = CLOSINGS[name]
    d = driver(policy=asks_for("refund"))
    d.send()
    closing.before(d)
    deaths = 0
    if closing.live is None:
        d.die()
    d.tear = kept
    try:
        d.resume() if closing.live is None else closing.live(d)
        d.seal()
    except Died:
        deaths += 1
    while d.state.run is not None:
        d.die()
        d.resume()
        if d.flying:
            d.back()
    assert folded(d.writes) == d.state
    return d, deaths


def _outcome(d: Driver) -> tuple[object, ...]:
    """What the log says of every call, how the run ended, and what the model will read."""
    records = [record for write in d.writes for record in write.records]
    ends = [record.reason for record in records if isinstance(record, RunFinished)]
    results = {(record.ordinal, str(record.outcome)) for record in records if isinstance(record, ToolResult)}
    assert len(results) == sum(isinstance(record, ToolResult) for record in records)
    return ends, results, [message.text for message in d.said]


def test_an_answer_without_calls_is_finished_without_a_model_call_unless_a_message_waits() -> None:
    for waiting in (None, "steer", "follow_up"):
        d = driver()
        d.send()
        if waiting is not None:
            d.message("m1", "one more thing", waiting)
        d.tear = 3  # the answer and its turn are durable, what follows is not
        with pytest.raises(Died):
            d.answer(say("done"))
        d.die()
        d.resume()
        assert (d.asking is None) == (waiting is None)
        if waiting is not None:
            d.answer(say("done, too"))
        assert d.state.ended[d.state.newest or ""].reason == "completed"
        assert len(d.requests) == (1 if waiting is None else 2)


def test_an_approval_survives_a_death_and_is_asked_for_once() -> None:
    d = driver(policy=asks_for("pay"))
    d.send()
    d.answer(call("pay", "read"))
    for _ in range(3):
        d.die()
        d.resume()
        assert d.idle
    assert len(d.state.run.step.undecided) == 1  # type: ignore[union-attr]  # it waits
    d.answer_approval(d.state.run.step.undecided[0].call_key, "approved")  # type: ignore[union-attr]  # it waits
    assert d.flying == {0, 1}
    d.back()
    quiesce(d)
    assert d.dispatched.total() == 2


def test_a_resume_of_a_finished_run_does_nothing() -> None:
    d = SCRIPTS["text"]()
    head = d.state.head
    d.die()
    d.resume()
    assert d.state.head == head
