"""A once call that is cut short is asked about before its run ends; where its process leaves, the next one asks."""

import asyncio
from pathlib import Path

import pytest

from semel import Agent, Completed, Happened, Limits, Runtime
from semel.adapters.memory.store import Medium, MemoryStore
from semel.adapters.system import SystemIds
from semel.core.features import KNOWN
from semel.core.limits import Limits as Frozen
from semel.engine.cutting import Cut, CutSignal
from semel.engine.resume import Ground
from semel.faces.run import RunHandle
from semel.ports.tool import Call, Reconciled
from tests.engine.fakes import CountingTool, call, counting, events_of, ground, loop_turns, script_file
from tests.engine.slow import StandingClock

pytestmark = pytest.mark.anyio

WALL_SECONDS = 100.0
RECONCILE_SECONDS = Frozen().reconcile_ms / 1000


class Looking(CountingTool):
    """A payment that never answers, and whose receiver takes its time to say that it was made; without a `word`, for ever."""

    def __init__(self, word: str | None = "paid all the same") -> None:
        super().__init__(spec=counting("pay", reconciles=True).spec)
        self.reached, self.looked, self._word = asyncio.Event(), asyncio.Event(), word

    async def run(self, arguments: object, call: Call[object]) -> str:
        self.keys.append(call.key)
        if len(self.keys) == 1:
            self.reached.set()
            await asyncio.Event().wait()
        return "paid"

    async def reconcile(self, call: Call[object]) -> Reconciled:
        self.asked.append(call.key)
        self.looked.set()
        await (loop_turns() if self._word is not None else asyncio.Event().wait())
        return Happened(output=self._word)


class Case:
    """A run that has such a payment under way, on a clock that a test moves."""

    def __init__(self, path: Path, *, ask_at: Medium | None = None) -> None:
        self.pay, self.clock, self.medium = Looking(), StandingClock(), ask_at or Medium()
        model = script_file(path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
        self.agent = Agent("a", model=model, tools=[self.pay], limits=Limits(wall_seconds=WALL_SECONDS))
        self.ground = Ground(store=MemoryStore(self.clock, known=KNOWN, medium=self.medium), clock=self.clock, ids=SystemIds())

    async def ended_by(self, how: str) -> str:
        """By what name the run ends."""
        async with Runtime(agents=[self.agent], ground=self.ground) as runtime:
            run = await runtime.session("s", agent=self.agent).send("go")
            await self.pay.reached.wait()
            await self._end(how, runtime)
            return (await run.result()).reason

    async def _end(self, how: str, runtime: Runtime) -> None:
        if how == "cancel":
            await runtime.cancel("s")
        elif how == "interrupt":
            run: RunHandle[str] = await runtime.session("s", agent=self.agent).send("no, this", delivery="interrupt")
            assert isinstance(await run.result(), Completed)  # which no call without an outcome keeps waiting
        else:
            self.clock.advance(WALL_SECONDS)


def told(store: MemoryStore) -> list[str]:
    """What is recorded of the calls of session `s`."""
    return [event["record"]["output"]["text"] for event in events_of(store) if event["type"] == "tool_result"]


@pytest.mark.parametrize(("how", "reason"), [("cancel", "cancelled"), ("interrupt", "cancelled"), ("wall", "time_limit")])
async def test_a_call_that_is_cut_short_is_asked_about_and_the_answer_is_waited_for(
    how: str, reason: str, tmp_path: Path
) -> None:
    case = Case(tmp_path)
    assert await case.ended_by(how) == reason
    assert case.pay.asked == case.pay.keys[:1]
    assert told(case.ground.store)[0] == "paid all the same"  # type: ignore[arg-type]  # it is in memory


@pytest.mark.parametrize("how", ["cancel", "wall"])
async def test_canary_a_question_that_any_cut_ends_is_caught(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: CutSignal, reason: Cut) -> None:
        self.reason = reason
        if not self.leaving.done():
            self.leaving.set_result(None)

    monkeypatch.setattr(CutSignal, "set", hasty)
    case = Case(tmp_path)
    assert await case.ended_by(how) in {"cancelled", "interrupted"}
    assert told(case.ground.store)[0].startswith("Outcome unknown")  # type: ignore[arg-type]  # it is in memory


async def test_a_question_that_nobody_answers_ends_at_its_own_limit_after_a_cancel(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.pay._word = None
    async with Runtime(agents=[case.agent], ground=case.ground) as runtime:
        run = await runtime.session("s", agent=case.agent).send("go")
        await case.pay.reached.wait()
        await runtime.cancel("s")
        await case.pay.looked.wait()
        await loop_turns()
        case.clock.advance(RECONCILE_SECONDS)
        result = await run.result()
    assert result.reason == "cancelled"
    assert told(case.ground.store)[0].startswith("Outcome unknown")  # type: ignore[arg-type]  # it is in memory


async def test_a_process_that_leaves_before_there_is_an_answer_leaves_the_question_to_the_next_one(tmp_path: Path) -> None:
    medium = Medium()
    first = Case(tmp_path, ask_at=medium)
    first.pay._word = None
    async with Runtime(agents=[first.agent], ground=first.ground, drain_seconds=0) as runtime:
        await runtime.session("s", agent=first.agent).send("go")
        await first.pay.reached.wait()
        await runtime.cancel("s")
        await first.pay.looked.wait()
    assert told(first.ground.store) == []  # type: ignore[arg-type]  # it is in memory
    second = Case(tmp_path, ask_at=medium)
    async with Runtime(agents=[second.agent], ground=ground(medium), recover="manual") as runtime:
        run = await runtime.resume("s")
        assert run is None or (await run.result()).reason == "cancelled"
    assert (second.pay.keys, len(second.pay.asked)) == ([], 1)
    assert told(second.ground.store) == ["paid all the same"]  # type: ignore[arg-type]  # it is in memory
