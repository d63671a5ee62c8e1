"""Hooks take their time outside the door of a session: nobody else who asks something of it waits for them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Cancelled, Completed, PreUser, Refuse, Rule, Runtime
from semel.core.records import Delivery
from semel.core.values import Effect
from semel.engine.outside import NotReady
from semel.engine.sessions import Sessions
from semel.errors import HookRefused, KeyReuse, RuntimeLeft, SessionBusy
from semel.faces.api import SessionHandle
from semel.faces.results import Paused
from tests.core.said import said_in
from tests.engine.fakes import call, counting, events_of, ground, loop_turns, script_file

pytestmark = pytest.mark.anyio

HANGS_SECONDS = 20
"""Nothing here takes a second: what takes so long stands still, and the test fails."""
IN_ORDER: tuple[Delivery, ...] = ("steer", "follow_up", "queue", "interrupt")


class SlowCheck:
    """A pre-user hook that answers about messages with `slow` in them when the test lets it; `asked` are those it was shown."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.entered, self.gate = asyncio.Event(), asyncio.Event()
        self.refuses = False

    async def __call__(self, told: PreUser) -> str | Refuse | None:
        self.asked.append(told.text)
        if "slow" not in told.text:
            return None
        self.entered.set()
        await self.gate.wait()
        return Refuse("no") if self.refuses else f"checked {told.text}"


class Desk:
    """A run whose tool is under way, in a session whose agent has a slow hook."""

    def __init__(self, tmp_path: Path, **more: Any) -> None:
        self.check, self.paying, self.paid = SlowCheck(), asyncio.Event(), asyncio.Event()
        model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, *[{"text": f"answer {at}"} for at in range(9)])
        tool = counting("pay", Effect.READ, behaviour=self._pay)
        self.agent = Agent("a", model=model, tools=[tool], pre_user=self.check, **more)
        self.on = ground()

    async def _pay(self, _arguments: object, _call: object) -> str:
        self.paying.set()
        await self.paid.wait()
        return "paid"

    def said(self) -> list[str]:
        return [message.text for message in said_in(self.on.store, "s") if not hasattr(message, "tool_call_id")]


async def by_cancel(session: SessionHandle[str], _waiting: str) -> None:
    await session.cancel()


async def by_stop(session: SessionHandle[str], _waiting: str) -> None:
    await session.stop()


async def by_retract(session: SessionHandle[str], waiting: str) -> None:
    await session.retract(waiting)


async def by_another(session: SessionHandle[str], _waiting: str) -> None:
    await session.steer("another", key="another")


ASKED: dict[str, Callable[[SessionHandle[str], str], Awaitable[None]]] = {
    "cancel": by_cancel,
    "stop": by_stop,
    "retract": by_retract,
    "send": by_another,
}


@pytest.mark.parametrize("verb", ASKED)
@pytest.mark.parametrize("delivery", IN_ORDER)
async def test_what_is_asked_of_a_session_does_not_wait_for_the_hooks_of_a_message(
    verb: str, delivery: Delivery, tmp_path: Path
) -> None:
    desk = Desk(tmp_path)
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        await session.send("go")
        await desk.paying.wait()
        await session.send("waits", delivery="queue", key="waits")
        sending = asyncio.ensure_future(session.send("slow", delivery=delivery, key="slow"))
        await desk.check.entered.wait()
        await ASKED[verb](session, "waits")
        assert not sending.done(), "the message is durable behind what was asked later"
        desk.check.gate.set()
        desk.paid.set()
        await (await sending).result()
    assert desk.said().count("checked slow") == 1
    assert desk.check.asked.count("slow") == 1


async def test_an_approval_does_not_wait_for_the_hooks_of_a_message(tmp_path: Path) -> None:
    desk = Desk(tmp_path, policy=[Rule("ask", "pay")])
    desk.paid.set()
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        paused = await (await session.send("go")).result()
        assert isinstance(paused, Paused)
        sending = asyncio.ensure_future(session.steer("slow"))
        await desk.check.entered.wait()
        run = await session.approve(paused.waits[0].call_key or "")
        assert run is not None
        assert isinstance(await run.end(), Completed)
        desk.check.gate.set()
        await sending
    assert desk.said().count("checked slow") == 1


async def test_a_steer_whose_run_was_cancelled_meanwhile_starts_the_next_one_as_the_hooks_left_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        first = await session.send("go")
        await desk.paying.wait()
        steering = asyncio.ensure_future(session.steer("slow", key="k"))
        await desk.check.entered.wait()
        await session.cancel()
        assert isinstance(await first.result(), Cancelled)
        desk.check.gate.set()
        told = await steering
        assert told.run_id != first.run_id
        again = await session.steer("slow", key="k")
        assert again.run_id == told.run_id
    assert desk.check.asked == ["go", "slow"]
    assert [event["record"]["key"] for event in events_of(desk.on.store) if event["type"] == "run_started"][1] == "k"


async def test_messages_stand_in_the_log_in_the_order_in_which_they_became_durable(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        run = await session.send("go")
        await desk.paying.wait()
        slow = asyncio.ensure_future(session.steer("slow"))
        await desk.check.entered.wait()
        await session.steer("later")
        desk.check.gate.set()
        await slow
        desk.paid.set()
        await run.result()
    assert desk.said()[2:4] == ["later", "checked slow"]


@pytest.mark.parametrize("delivery", [*IN_ORDER, None])
async def test_the_hooks_of_one_delivery_are_asked_once_however_often_it_is_tried_meanwhile(
    delivery: Delivery | None, tmp_path: Path
) -> None:
    desk = Desk(tmp_path)
    desk.paid.set()
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        tries = [asyncio.ensure_future(session.send("slow", delivery=delivery, key="k")) for _ in range(3)]
        other = asyncio.ensure_future(session.send("slow, and other words", delivery=delivery, key="k"))
        await desk.check.entered.wait()
        await loop_turns()
        desk.check.gate.set()
        runs = await asyncio.gather(*tries)
        with pytest.raises(KeyReuse, match="input"):
            await other
        for run in runs:
            await run.result()
    assert len({run.run_id for run in runs}) == 1
    assert desk.check.asked == ["slow"]
    assert desk.said().count("checked slow") == 1


async def test_who_hangs_up_while_the_hooks_are_asked_takes_nobody_along_who_tries_the_same(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.paid.set()
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        first, second = (asyncio.ensure_future(session.send("slow", key="k")) for _ in range(2))
        await desk.check.entered.wait()
        first.cancel()
        await asyncio.wait({first})
        assert not desk.on.store.exists("s")
        desk.check.gate.set()
        assert isinstance(await (await second).result(), Completed)
    assert desk.said().count("checked slow") == 1


async def test_a_message_that_a_slow_hook_refuses_was_never_there(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.check.refuses = True
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        await session.send("go")
        await desk.paying.wait()
        sending = asyncio.ensure_future(session.steer("slow"))
        await desk.check.entered.wait()
        head = len(events_of(desk.on.store))
        desk.check.gate.set()
        with pytest.raises(HookRefused, match="Nothing was accepted"):
            await sending
        assert len(events_of(desk.on.store)) == head
        desk.paid.set()


async def test_a_plain_send_that_another_has_overtaken_while_its_hooks_were_asked_is_refused_as_busy(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        slow = asyncio.ensure_future(session.send("slow"))
        await desk.check.entered.wait()
        await session.send("go")
        await desk.paying.wait()
        desk.check.gate.set()
        with pytest.raises(SessionBusy, match="open run"):
            await slow
        asked = list(desk.check.asked)
        with pytest.raises(SessionBusy, match="open run"):
            await session.send("slow again")
        assert desk.check.asked == asked, "a send that cannot be accepted asks no hook"
        desk.paid.set()


async def test_leaving_a_runtime_does_not_wait_for_hooks_and_what_they_were_asked_about_was_not_accepted(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with asyncio.timeout(HANGS_SECONDS):
        async with Runtime(agents=[desk.agent], ground=desk.on) as runtime:
            session = runtime.session("s", agent=desk.agent)
            await session.send("go")
            await desk.paying.wait()
            sending = asyncio.ensure_future(session.steer("slow"))
            await desk.check.entered.wait()
            desk.paid.set()
        with pytest.raises(RuntimeLeft):
            await sending
    assert "checked slow" not in desk.said()
    assert desk.on.store.owner("s") is None


async def test_a_hook_that_is_asked_within_the_door_would_hold_up_a_cancel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the work is done where it was needed, as it once was."""
    within = Sessions._within

    async def all_within(self: Sessions, session: str, begin: Any) -> Any:
        async def doing(actor: Any) -> Any:
            while True:
                try:
                    return await begin(actor)
                except NotReady as need:
                    await need.work()

        return await within(self, session, doing)

    monkeypatch.setattr(Sessions, "_within", all_within)
    desk = Desk(tmp_path)
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        await session.send("go")
        await desk.paying.wait()
        steering = asyncio.ensure_future(session.steer("slow"))
        await desk.check.entered.wait()
        cancelling = asyncio.ensure_future(session.cancel())
        await loop_turns()
        assert not cancelling.done()
        desk.check.gate.set()
        await asyncio.gather(steering, cancelling)
