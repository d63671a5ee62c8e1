"""A call that a dead process may have sent stays in doubt until it is settled, whatever is asked meanwhile (P2)."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from semel import Agent, Happened, Interrupted, Rule, Runtime
from semel.adapters.memory.store import Medium
from semel.engine import loop
from semel.errors import SemelError
from semel.faces.run import RunHandle
from semel.ports.tool import Call, Reconciled, StillUnknown
from tests.engine.fakes import CountingTool, call, counting, ground, loop_turns, script_file
from tests.engine.test_resume import Life

pytestmark = pytest.mark.anyio


class TwoPayments(CountingTool):
    """Payments that never come back in their first process, and whose receiver takes its time to say whether they were made."""

    def __init__(self, found: Reconciled) -> None:
        super().__init__(spec=counting("pay", reconciles=True).spec, found=found)
        self.reached, self.looking, self.told = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(self, arguments: object, call: Call[object]) -> str:
        self.keys.append(call.key)
        if len(self.keys) == 2:
            self.reached.set()
        if len(self.keys) <= 2:
            await asyncio.Event().wait()
        return "paid once more"

    async def reconcile(self, call: Call[object]) -> Reconciled:
        self.asked.append(call.key)
        self.looking.set()
        await self.told.wait()
        return self.found


Ask = Callable[[Runtime, Agent[str], str], Awaitable[object]]

REQUESTS: dict[str, Ask] = {
    "the same approval again": lambda runtime, _agent, key: runtime.approve(key),
    "another answer": lambda runtime, _agent, key: runtime.deny(key),
    "a steer": lambda runtime, agent, _key: runtime.session("s", agent=agent).send("quickly", delivery="steer"),
    "a follow-up": lambda runtime, agent, _key: runtime.session("s", agent=agent).send("and then", delivery="follow_up"),
    "a message for later": lambda runtime, agent, _key: runtime.session("s", agent=agent).send("later", delivery="queue"),
    "the same send again": lambda runtime, agent, _key: runtime.session("s", agent=agent).send("go", key="k"),
    "a cancel at the boundary": lambda runtime, _agent, _key: runtime.cancel("s", at="step_boundary"),
    "a stop": lambda runtime, agent, _key: runtime.session("s", agent=agent).stop(),
    "a result that nobody owes": lambda runtime, _agent, key: runtime.deliver(key, "paid"),
}


async def resumed(path: Path, found: Reconciled, ask: Ask) -> tuple[TwoPayments, object]:
    """Both payments left and their process died; the next one asks about the first while somebody asks something of the run."""
    pay, medium = TwoPayments(found), Medium()
    calls = [call("pay", n=1), call("pay", n=2)]
    model = script_file(path / "m.json", {"calls": calls}, {"text": "done"}, {"text": "done again"})
    agent = Agent("a", model=model, tools=[pay], policy=[Rule("ask", "pay")])

    async def begin(runtime: Runtime) -> RunHandle[str]:
        run = await runtime.session("s", agent=agent).send("go", key="k")
        for wait in (await run.result()).waits:  # type: ignore[union-attr]  # it waits for two answers
            await runtime.approve(wait.call_key)
        return run

    await Life(medium, agent, pay.reached).die_in_the_tool(begin)
    first = pay.keys[0]
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        run = await runtime.resume("s")
        assert run is not None
        await pay.looking.wait()
        with suppress(SemelError):
            await ask(runtime, agent, first)
        await loop_turns()
        pay.told.set()
        return pay, await run.result()


@pytest.mark.parametrize("name", REQUESTS)
async def test_what_is_asked_while_a_lost_call_is_looked_up_makes_no_other_lost_call_leave_again(
    name: str, tmp_path: Path
) -> None:
    pay, result = await resumed(tmp_path, Happened(output="it was paid"), REQUESTS[name])
    assert len(pay.keys) == 2, "each payment left once"
    assert pay.asked == pay.keys, "each was asked about"
    assert not isinstance(result, Interrupted)


@pytest.mark.parametrize("name", REQUESTS)
async def test_what_is_asked_while_a_lost_call_is_looked_up_makes_no_other_lost_call_one_that_was_never_sent(
    name: str, tmp_path: Path
) -> None:
    pay, result = await resumed(tmp_path, StillUnknown(), REQUESTS[name])
    assert len(pay.keys) == 2, "each payment left once"
    assert isinstance(result, Interrupted)
    assert sorted(unknown.call_key for unknown in result.unknown) == sorted(pay.keys)


async def test_canary_a_repeated_answer_that_forgets_what_is_in_doubt_pays_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "still_doubtful", lambda _run, _before, decided: decided or frozenset())
    pay, _ = await resumed(tmp_path, Happened(output="it was paid"), REQUESTS["the same approval again"])
    assert len(pay.keys) == 3
