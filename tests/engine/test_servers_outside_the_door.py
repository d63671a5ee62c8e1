"""Tool servers start outside the door of a session: nobody else who asks something of it waits for them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from semel import Completed, Interrupted, Runtime
from semel.core.values import ToolSpec
from semel.engine.outside import Prepared
from semel.errors import BadAgent, UnknownMessage
from semel.faces.api import SessionHandle
from semel.ports.source import OpenSource
from tests.engine.fakes import counting, events_of, loop_turns
from tests.engine.test_outside_the_door import HANGS_SECONDS, Desk

pytestmark = pytest.mark.anyio


class SlowServer:
    """A source of tools that says what it offers when the test lets it, once it is `slow`."""

    module = "server"

    def __init__(self) -> None:
        self.slow = False
        self.starting, self.gate = asyncio.Event(), asyncio.Event()
        self.asked = 0

    async def offered(self) -> Sequence[ToolSpec]:
        self.asked += 1
        if self.slow:
            self.starting.set()
            await self.gate.wait()
        return ()

    def open(self, specs: Sequence[ToolSpec], run_id: str | None) -> OpenSource:
        return Nothing()


class Nothing:
    """The tools of a source that offers none."""

    tools = MappingProxyType[str, Any]({})

    async def close(self) -> None:
        """There is nothing to end."""


class Served(Desk):
    """A desk whose agent asks a server for tools at the start of each run."""

    def __init__(self, tmp_path: Path, **more: Any) -> None:
        super().__init__(tmp_path, **more)
        self.server = SlowServer()
        self.agent = replace(self.agent, tools=[*self.agent.tools, self.server])


async def with_a_run_that_waits_for_its_server(desk: Served, session: SessionHandle[str]) -> str:
    """A run ends, and the message behind it is about to start its own; the id of that run."""
    await session.send("go")
    await desk.paying.wait()
    waiting = await session.send("waits", delivery="queue", key="waits")
    desk.server.slow = True
    desk.paid.set()
    await desk.server.starting.wait()
    return waiting.run_id


async def test_a_message_whose_run_waits_for_its_server_can_be_taken_back_meanwhile(tmp_path: Path) -> None:
    desk = Served(tmp_path)
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        await with_a_run_that_waits_for_its_server(desk, session)
        await session.retract("waits")
        desk.server.gate.set()
    assert [event["type"] for event in events_of(desk.on.store)].count("run_started") == 1
    assert not runtime.diary.since(0)


async def test_what_was_taken_back_leaves_its_turn_to_the_message_behind_it(tmp_path: Path) -> None:
    desk = Served(tmp_path)
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        await with_a_run_that_waits_for_its_server(desk, session)
        second = await session.send("second", delivery="queue", key="second")
        await session.retract("waits")
        desk.server.gate.set()
        assert isinstance(await second.result(), Completed)
    started = [event["record"]["key"] for event in events_of(desk.on.store) if event["type"] == "run_started"]
    assert started[1:] == ["second"]


async def test_a_run_that_started_while_the_next_one_waited_for_its_server_goes_first(tmp_path: Path) -> None:
    desk = Served(tmp_path)
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        waiting = await with_a_run_that_waits_for_its_server(desk, session)
        desk.server.slow = False
        steered = await session.send("now", delivery="steer", key="now")
        assert isinstance(await steered.result(), Completed)
        desk.server.gate.set()
        again = await session.send("waits", delivery="queue", key="waits")
        assert again.run_id == waiting
        assert isinstance(await again.result(), Completed)
    started = [event["record"]["key"] for event in events_of(desk.on.store) if event["type"] == "run_started"]
    assert started[1:] == ["now", "waits"]


@pytest.mark.parametrize("error", [BadAgent("the server says nothing"), asyncio.CancelledError()])
async def test_a_server_that_cannot_start_leaves_the_message_in_the_queue_and_the_session_free(
    error: BaseException, tmp_path: Path
) -> None:
    desk = Served(tmp_path)
    offered = desk.server.offered

    async def broken() -> Sequence[ToolSpec]:
        await offered()
        raise error

    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        await session.send("go")
        await desk.paying.wait()
        waiting = await session.send("waits", delivery="queue", key="waits")
        desk.server.offered = broken  # type: ignore[method-assign]  # it breaks from now on
        desk.paid.set()
        await waiting.rest()
        assert [failure.stage for failure in runtime.diary.since(0)] == ["begin"]
        assert desk.on.store.owner("s") is None
        await session.retract("waits")
        with pytest.raises(UnknownMessage):
            await session.retract("other")


async def test_leaving_a_runtime_does_not_wait_for_the_server_of_the_next_run(tmp_path: Path) -> None:
    desk = Served(tmp_path)
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        await with_a_run_that_waits_for_its_server(desk, runtime.session("s", agent=desk.agent))
    assert desk.on.store.owner("s") is None
    assert not runtime.diary.since(0)


async def test_a_verdict_that_goes_on_does_not_hold_up_its_session_while_a_server_starts(tmp_path: Path) -> None:
    desk = Served(tmp_path)

    async def lose(_arguments: object, _call: object) -> object:
        raise TimeoutError

    server, pay = desk.server, counting("pay", behaviour=lose)  # type: ignore[arg-type]  # it gives nothing
    desk.agent = replace(desk.agent, tools=[pay, server])
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        result = await (await session.send("go")).result()
        assert isinstance(result, Interrupted)
        server.slow = True
        verdict = asyncio.ensure_future(runtime.resolve(result.unknown[0].call_key, "happened", go_on=True))
        await server.starting.wait()
        assert await session.cancel() is None
        server.gate.set()
        run = await verdict
        assert run is not None
        assert isinstance(await run.result(), Completed)


async def test_going_on_behind_an_unknown_call_does_not_hold_up_its_session_while_a_server_starts(tmp_path: Path) -> None:
    desk = Served(tmp_path)

    async def lose(_arguments: object, _call: object) -> object:
        desk.paying.set()
        await desk.paid.wait()
        raise TimeoutError

    server, pay = desk.server, counting("pay", behaviour=lose)  # type: ignore[arg-type]  # it gives nothing
    desk.agent = replace(desk.agent, tools=[pay, server])
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        run = await session.send("go")
        await desk.paying.wait()
        await session.send("waits", delivery="queue", key="waits")
        desk.paid.set()
        assert isinstance(await run.result(), Interrupted)
        server.slow = True
        going = asyncio.ensure_future(session.resume(go_on=True))
        await server.starting.wait()
        await session.send("second", delivery="queue", key="second")
        await session.retract("second")
        server.gate.set()
        gone_on = await going
        assert gone_on is not None
        assert isinstance(await gone_on.result(), Completed)


async def test_a_server_that_starts_within_the_door_would_hold_up_a_retract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: what takes its time is made where it is missed."""
    take = Prepared.take

    async def at_once(self: Prepared[Any], name: str, make: Any, *, slow: bool) -> Any:
        return await take(self, name, make, slow=False)

    monkeypatch.setattr(Prepared, "take", at_once)
    desk = Served(tmp_path)
    async with asyncio.timeout(HANGS_SECONDS), Runtime(agents=[desk.agent], ground=desk.on) as runtime:
        session = runtime.session("s", agent=desk.agent)
        await with_a_run_that_waits_for_its_server(desk, session)
        taking_back = asyncio.ensure_future(session.retract("waits"))
        await loop_turns()
        assert not taking_back.done()
        desk.server.gate.set()
        with pytest.raises(UnknownMessage):  # its run has started
            await taking_back
