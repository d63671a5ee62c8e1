"""B38: an approval survives a restart, is answered once, and lets exactly the call go that a person saw."""

from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Cancelled, Completed, Paused, Rule, Runtime
from semel.adapters.memory.store import Medium
from semel.errors import ApprovalClosed, RunNotCompleted, SessionBusy
from semel.faces.views import view_of, waiting_calls
from tests.engine.fakes import CountingTool, call, counting, events_of, ground, script_file

pytestmark = pytest.mark.anyio


class Case:
    """An agent that pays; every payment waits for a person. Each `async with life()` is a process of its own."""

    def __init__(self, tmp_path: Path, *answers: Any) -> None:
        self.medium = Medium()
        self.pay: CountingTool = counting("pay")
        self.policy = [Rule("ask", "pay")]
        told = answers or ({"calls": [call("pay", amount=10)]}, {"text": "paid"}, {"text": "more"})
        self.model = script_file(tmp_path / "m.json", *told)

    def agent(self) -> Agent[str]:
        return Agent("a", model=self.model, tools=[self.pay], policy=self.policy)

    def life(self) -> Runtime:
        return Runtime(agents=[self.agent()], recover="manual", ground=ground(self.medium))

    def kinds(self) -> list[str]:
        return [event["type"] for event in events_of(ground(self.medium).store)]

    async def asked(self) -> list[str]:
        """Run until a person is asked; the keys of the calls, in the order of the answer."""
        async with self.life() as runtime:
            paused = await (await runtime.session("s", agent=self.agent()).send("go", key="k")).result()
        assert isinstance(paused, Paused)
        assert paused.reason == "approval"
        return [str(wait.call_key) for wait in paused.waits]


async def test_b38_an_approval_is_listed_after_a_restart_and_answered_once(tmp_path: Path) -> None:
    case = Case(tmp_path)
    (key,) = await case.asked()
    listed = list(waiting_calls(ground(case.medium).store))
    assert [(one.call.call_key, one.call.tool, one.call.arguments) for one in listed] == [(key, "pay", '{"amount":10}')]
    async with case.life() as runtime:
        run = await runtime.approve(key[:8], by="ann")
        assert run is not None
        assert isinstance(await run.result(), Completed)
        await runtime.approve(key)  # a second post of the same answer
        with pytest.raises(ApprovalClosed):
            await runtime.deny(key)
    assert len(case.pay.keys) == 1
    assert case.kinds().count("approval_resolved") == 1


async def test_b38_an_answer_that_is_given_while_nobody_carries_the_run_is_kept(tmp_path: Path) -> None:
    case = Case(tmp_path)
    (key,) = await case.asked()
    for _ in range(2):
        async with Runtime(recover="never", ground=ground(case.medium)) as clerk:
            await clerk.approve(key)
    assert case.pay.keys == []
    async with case.life() as runtime:
        run = await runtime.resume("s")
        assert run is not None
        assert isinstance(await run.result(), Completed)
    assert len(case.pay.keys) == 1
    assert case.kinds().count("approval_resolved") == 1


async def test_b38_a_cancel_closes_the_approval_and_the_session_goes_on(tmp_path: Path) -> None:
    case = Case(tmp_path)
    (key,) = await case.asked()
    async with case.life() as runtime:
        ended = await runtime.cancel("s")
        assert ended is not None
        assert isinstance(await ended.result(), Cancelled)
        with pytest.raises(ApprovalClosed, match="cancelled"):
            await runtime.approve(key)
        after = await runtime.session("s", agent=case.agent()).send("never mind")
        assert isinstance(await after.result(), Completed)
    assert case.pay.keys == []
    answer = next(event["record"] for event in events_of(ground(case.medium).store) if event["type"] == "approval_resolved")
    assert answer["decision"] == "cancelled"


async def test_b38_a_plain_message_neither_approves_nor_gets_lost(tmp_path: Path) -> None:
    case = Case(tmp_path)
    (key,) = await case.asked()
    async with case.life() as runtime:
        session = runtime.session("s", agent=case.agent())
        with pytest.raises(SessionBusy, match="inbox"):
            await session.send("yes, do it")
        queued = await session.send("yes, do it", delivery="queue", key="2")
        with pytest.raises(RunNotCompleted, match="waits in the queue"):
            await queued.result()
        assert case.pay.keys == []
        assert "approval_resolved" not in case.kinds()
        run = await runtime.approve(key)
        assert run is not None
        assert isinstance(await run.result(), Completed)
        again = await session.send("yes, do it", delivery="queue", key="2")
        assert again.run_id == queued.run_id
        assert isinstance(await again.result(), Completed)
    said = [
        message.text
        for message in view_of(ground(case.medium).store, "s").state.transcript
        if type(message).__name__ == "UserMessage"
    ]
    assert said == ["go", "yes, do it"]


async def test_b38_a_start_that_fails_leaves_the_answer_recorded_and_the_run_resumable(tmp_path: Path) -> None:
    case = Case(tmp_path)
    (key,) = await case.asked()
    broken = Agent("a", model=case.model, tools=[counting("other")], policy=case.policy)
    async with Runtime(agents=[broken], recover="manual", ground=ground(case.medium)) as runtime:
        await runtime.approve(key)
        assert runtime.diary.incidents
    assert case.kinds()[-1] == "approval_resolved"
    async with case.life() as runtime:
        run = await runtime.resume("s")
        assert run is not None
        assert isinstance(await run.result(), Completed)
    assert len(case.pay.keys) == 1


async def test_b38_a_batch_waits_for_all_of_its_answers_and_the_model_reads_why_one_was_refused(tmp_path: Path) -> None:
    calls = {"calls": [call("pay", amount=amount) for amount in (1, 2, 3)]}
    case = Case(tmp_path, calls, {"text": "done"})
    first, second, third = await case.asked()
    async with case.life() as runtime:
        await runtime.approve(first)
        await runtime.deny(second, note="too much")
        assert case.pay.keys == []
        run = await runtime.approve(third)
        assert run is not None
        assert isinstance(await run.result(), Completed)
    assert case.pay.keys == [first, third]
    assert case.kinds().count("step_started") - case.kinds().count("resume_started") <= 2
    results = [
        message for message in view_of(ground(case.medium).store, "s").state.transcript if type(message).__name__ == "ToolMessage"
    ]
    assert [result.is_error for result in results] == [False, True, False]
    assert "declined" in results[1].text


async def test_b38_an_approval_stands_where_the_policy_denies_meanwhile(tmp_path: Path) -> None:
    case = Case(tmp_path)
    (key,) = await case.asked()
    case.policy = [Rule("deny", "pay", why="No more payments.")]
    async with case.life() as runtime:
        run = await runtime.approve(key)
        assert run is not None
        assert isinstance(await run.result(), Completed)
    assert len(case.pay.keys) == 1, "a person has decided about exactly this call (decision 0012)"


async def test_b38_the_same_call_with_other_arguments_needs_an_approval_of_its_own(tmp_path: Path) -> None:
    case = Case(tmp_path, {"calls": [call("pay", amount=10)]}, {"calls": [call("pay", amount=900)]}, {"text": "done"})
    (key,) = await case.asked()
    async with case.life() as runtime:
        run = await runtime.approve(key)
        assert run is not None
        paused = await run.result()
    assert isinstance(paused, Paused)
    assert paused.waits[0].call_key != key
    assert len(case.pay.keys) == 1
