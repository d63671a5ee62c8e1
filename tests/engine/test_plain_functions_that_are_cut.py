"""A plain function whose call is cut is told so and waited for, and one that still runs is not taken for one that did nothing.

The functions run in real threads, and a test lets them go on by an event; its clock stands still, so nothing is cut by itself.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Call, Cancelled, Completed, Failed, Happened, Interrupted, Limits, Never, Runtime, tool
from semel.adapters.memory.store import Medium, MemoryStore
from semel.adapters.system import SystemIds
from semel.adapters.tools import threads
from semel.core.features import KNOWN
from semel.engine import flight, flights
from semel.engine.cutting import Cut
from semel.engine.perform import Performer
from semel.engine.resume import Ground
from semel.ports.roster import ROSTER
from semel.ports.tool import Reconciled
from tests.engine.fakes import call, events_of, loop_turns, script_file
from tests.engine.slow import StandingClock

pytestmark = pytest.mark.anyio

SECONDS_MOST = 20.0
TIMEOUT_SECONDS, WALL_SECONDS = 10.0, 100.0
STOPPED = "stopped in time"


class Hand:
    """The side of the test: a call of the tool has begun, is told to end, goes on when the test says so, and has acted."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.begun, self.acted, self.goes_on = asyncio.Event(), asyncio.Event(), threading.Event()
        self.calls: list[Call[Any]] = []
        self.asked = 0

    def begin(self, call: Call[Any]) -> None:
        self.calls.append(call)
        self.loop.call_soon_threadsafe(self.begun.set)

    def end(self) -> str:
        with suppress(RuntimeError):  # the loop is gone
            self.loop.call_soon_threadsafe(self.acted.set)
        return STOPPED

    async def told(self) -> None:
        """Wait until each of the calls is told to end."""
        for each in self.calls:
            assert isinstance(each.cancelled, asyncio.Event)
            await each.cancelled.wait()

    def look(self, call: Call[Any]) -> Reconciled:
        """What an honest reconciler says that only looks: not there means never."""
        self.asked += 1
        return Happened(output="paid all the same") if self.acted.is_set() else Never()

    def tool(self, **declared: Any) -> Any:
        """A payment in a thread."""

        @tool(**{"timeout": TIMEOUT_SECONDS} | declared)
        def pay(*, call: Call[None]) -> str:
            self.begin(call)
            assert self.goes_on.wait(SECONDS_MOST)
            return self.end()

        return pay

    def deaf_task(self, **declared: Any) -> Any:
        """A payment on the event loop that hears nothing."""

        @tool(**{"timeout": TIMEOUT_SECONDS} | declared)
        async def pay(*, call: Call[None]) -> str:
            self.begin(call)
            while not self.goes_on.is_set():
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.001)
            return self.end()

        return pay


class Case:
    """A run that has such a payment under way, in a process that a test leaves and enters again."""

    def __init__(self, path: Path, found: Any, *, calls: int = 1) -> None:
        self.clock, self.medium = StandingClock(), Medium()
        model = script_file(path / "m.json", {"calls": [call("pay")] * calls}, {"text": "done"})
        self.agent = Agent("a", model=model, tools=[found], limits=Limits(wall_seconds=WALL_SECONDS))

    def runtime(self, **options: Any) -> Runtime:
        store = MemoryStore(self.clock, known=KNOWN, medium=self.medium)
        ground = Ground(store=store, clock=self.clock, ids=SystemIds())
        return Runtime(agents=[self.agent], ground=ground, drain_seconds=0, **options)

    async def cut(self, how: str, runtime: Runtime) -> None:
        """Cut the call that is under way."""
        if how == "cancel":
            await runtime.cancel("s")
        else:
            self.clock.advance(TIMEOUT_SECONDS if how == "timeout" else WALL_SECONDS)

    def results(self) -> list[tuple[str, str]]:
        """The outcome and the text of each call, as recorded: in its result, or before that where it came back by itself."""
        events = events_of(MemoryStore(self.clock, known=KNOWN, medium=self.medium))
        records = [event["record"] for event in events if event["type"] in {"tool_result", "tool_call_returned"}]
        return [(record["outcome"], record["output"]["text"]) for record in records if "output" in record]


def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """For functions that never end in time: nobody has to wait 5 s for that."""
    for module in (flight, flights, threads):
        monkeypatch.setattr(module, "CANCEL_GRACE_SECONDS", 0.01)


@pytest.fixture
async def hand() -> Any:
    hand = Hand()
    yield hand
    hand.goes_on.set()


HOW = {"cancel": Cancelled, "timeout": Completed, "wall": Failed}


def timeout_of(how: str) -> float | None:
    return TIMEOUT_SECONDS if how == "timeout" else None


@pytest.mark.parametrize("how", HOW)
async def test_what_a_plain_function_returns_within_the_grace_is_the_outcome_of_its_call(
    how: str, hand: Hand, tmp_path: Path
) -> None:
    case = Case(tmp_path, hand.tool(timeout=timeout_of(how)))
    async with case.runtime() as runtime:
        run = await runtime.session("s", agent=case.agent).send("go")
        await hand.begun.wait()
        await case.cut(how, runtime)
        await hand.told()
        await loop_turns()
        hand.goes_on.set()
        assert isinstance(await run.result(), HOW[how])
    assert case.results() == [("completed", STOPPED)]


async def test_a_runtime_that_is_left_waits_for_a_plain_function_that_ends_when_it_is_told(hand: Hand, tmp_path: Path) -> None:
    case = Case(tmp_path, hand.tool())
    runtime = await case.runtime().__aenter__()
    await runtime.session("s", agent=case.agent).send("go")
    await hand.begun.wait()
    leaving = asyncio.ensure_future(runtime.__aexit__(None, None, None))
    await hand.told()
    await loop_turns()
    hand.goes_on.set()
    await leaving
    assert case.results() == [("completed", STOPPED)]


async def test_canary_a_function_that_is_given_no_time_to_end_loses_what_it_returns(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "CANCEL_GRACE_SECONDS", 0)
    case = Case(tmp_path, hand.tool())
    async with case.runtime() as runtime:
        run = await runtime.session("s", agent=case.agent).send("go")
        await hand.begun.wait()
        await case.cut("cancel", runtime)
        await run.result()
    (result,) = case.results()
    assert result[0] == "unknown"


@pytest.mark.parametrize("raised", [ValueError("no"), KeyboardInterrupt()])
async def test_what_a_plain_function_raises_within_the_grace_is_judged_as_that_of_any_tool(
    raised: BaseException, hand: Hand, tmp_path: Path
) -> None:
    def refuse() -> str:
        raise raised

    hand.end = refuse  # type: ignore[method-assign]  # it raises instead
    case = Case(tmp_path, hand.tool())
    async with case.runtime() as runtime:
        run = await runtime.session("s", agent=case.agent).send("go")
        await hand.begun.wait()
        await case.cut("cancel", runtime)
        await hand.told()
        hand.goes_on.set()
        await run.result()
    (result,) = case.results()
    assert result[0] == ("completed" if isinstance(raised, ValueError) else "unknown")


@pytest.mark.parametrize("how", [*HOW, "leave"])
async def test_a_plain_function_that_does_not_end_in_the_grace_is_unknown_and_named(
    how: str, hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_grace(monkeypatch)
    case = Case(tmp_path, hand.tool(timeout=timeout_of(how)))
    async with case.runtime() as runtime:
        run = await runtime.session("s", agent=case.agent).send("go")
        await hand.begun.wait()
        if how != "leave":
            await case.cut(how, runtime)
            result = await run.result()
            assert [one.call_key for one in result.unknown] == [hand.calls[0].key]
            assert runtime.resources().threads == ("tool pay",)
    assert runtime.stop_outcome is not None
    assert runtime.stop_outcome.deaf == ("tool pay",)
    (result,) = case.results()
    assert result[0] == "unknown"


async def test_plain_functions_that_are_cut_together_are_waited_for_side_by_side(hand: Hand, tmp_path: Path) -> None:
    case = Case(tmp_path, hand.tool(), calls=3)
    async with case.runtime() as runtime:
        run = await runtime.session("s", agent=case.agent).send("go")
        while len(hand.calls) < 3:
            await hand.begun.wait()
            await asyncio.sleep(0)
        await case.cut("cancel", runtime)
        await hand.told()  # every one of them, while none has ended
        hand.goes_on.set()
        assert isinstance(await run.result(), Cancelled)
    assert case.results() == [("completed", STOPPED)] * 3


async def test_a_plain_function_that_is_waited_for_holds_up_no_other_run(hand: Hand, tmp_path: Path) -> None:
    case = Case(tmp_path, hand.tool())
    async with case.runtime() as runtime:
        run = await runtime.session("s", agent=case.agent).send("go")
        await hand.begun.wait()
        await case.cut("cancel", runtime)
        await hand.told()
        other = Agent("b", model=script_file(tmp_path / "b.json", {"text": "done"}))
        assert isinstance(await (await runtime.session("t", agent=other).send("go")).result(), Completed)
        assert not hand.acted.is_set()
        assert case.results() == []
        hand.goes_on.set()
        assert isinstance(await run.result(), Cancelled)


async def asked_while_it_runs(case: Case, hand: Hand, how: str = "timeout") -> list[tuple[str, str]]:
    """What is recorded of a payment that is deaf to its time limit, asked about, and then goes on and acts."""
    async with case.runtime() as runtime:
        run = await runtime.session("s", agent=case.agent).send("go")
        await hand.begun.wait()
        await case.cut(how, runtime)
        await run.result()
        assert hand.asked == 1
        hand.goes_on.set()
        await hand.acted.wait()
    return case.results()


KINDS: dict[str, Callable[..., Any]] = {"in a thread": Hand.tool, "on the event loop": Hand.deaf_task}


@pytest.mark.parametrize("how", ["timeout", "cancel"])
@pytest.mark.parametrize("kind", KINDS)
async def test_that_it_never_happened_is_not_believed_of_a_call_that_still_runs(
    kind: str, how: str, hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_grace(monkeypatch)
    case = Case(tmp_path, KINDS[kind](hand, reconcile=hand.look))
    (result,) = await asked_while_it_runs(case, hand, how)
    assert result[0] == "unknown"
    assert "still running" in result[1]


@pytest.mark.parametrize("kind", KINDS)
async def test_that_it_did_happen_is_believed_of_a_call_that_still_runs(
    kind: str, hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_grace(monkeypatch)

    def there(_call: Call[Any]) -> Reconciled:
        hand.asked += 1
        return Happened(output="it is there")

    (result,) = await asked_while_it_runs(Case(tmp_path, KINDS[kind](hand, reconcile=there)), hand)
    assert result == ("completed", "it is there")


async def test_an_answer_that_is_asked_for_while_a_call_runs_is_not_believed_because_it_ends_meanwhile(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_grace(monkeypatch)

    async def look(_call: Call[Any]) -> Reconciled:
        found = hand.look(_call)
        hand.goes_on.set()
        await hand.acted.wait()
        await loop_turns()
        return found

    (result,) = await asked_while_it_runs(Case(tmp_path, hand.tool(reconcile=look)), hand)
    assert result[0] == "unknown"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_that_outlives_its_runtime_is_unknown_and_not_left_for_the_next_process_to_ask_about(
    kind: str, hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_grace(monkeypatch)
    case = Case(tmp_path, KINDS[kind](hand, reconcile=hand.look))
    async with case.runtime() as runtime:
        await runtime.session("s", agent=case.agent).send("go")
        await hand.begun.wait()
    assert [result[0] for result in case.results()] == ["unknown"]
    assert hand.asked == 0


async def test_canary_a_call_that_is_left_open_while_it_runs_is_asked_about_and_told_as_one_that_never_happened(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_grace(monkeypatch)
    case = Case(tmp_path, hand.tool(reconcile=hand.look))
    monkeypatch.setattr(Performer, "_is_left_open", lambda self, _flight: self.cut.reason is Cut.LEAVING)
    async with case.runtime() as runtime:
        await runtime.session("s", agent=case.agent).send("go")
        await hand.begun.wait()
    assert case.results() == []
    with monkeypatch.context() as another_process:
        another_process.setattr(ROSTER, "works_for", lambda _call: frozenset())
        async with case.runtime(recover="manual") as runtime:
            run = await runtime.resume("s")
            assert run is not None
            assert isinstance(await run.result(), Completed)
    hand.goes_on.set()
    await hand.acted.wait()
    (result,) = case.results()
    assert result[1].startswith("Did not happen")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_resume_in_the_same_process_does_not_believe_it_of_a_call_that_still_runs(
    kind: str, hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log could not be written any more, so that the call is open; what works for it does so all the same."""
    short_grace(monkeypatch)
    case = Case(tmp_path, KINDS[kind](hand, reconcile=hand.look))
    first = await case.runtime().__aenter__()
    await first.session("s", agent=case.agent).send("go")
    await hand.begun.wait()
    await first._keeper.sessions.actors["s"].close()
    async with case.runtime(recover="manual") as runtime:
        run = await runtime.resume("s")
        assert run is not None
        assert isinstance(await run.result(), Interrupted)
    (result,) = case.results()
    assert result[0] == "unknown"
    assert hand.asked == 1
