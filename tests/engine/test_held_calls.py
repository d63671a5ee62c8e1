"""Calls whose result comes later: held ones, for which the run waits, and deferred ones, for which it does not."""

from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Cancelled, Completed, Deferred, Held, Paused, Runtime
from semel.core.values import JSON
from semel.engine.resume import Ground
from semel.errors import KeyReuse, SessionBusy, UnknownCall
from semel.ports.tool import Call
from tests.engine.fakes import call, counting, events_of, ground, loop_turns, script_file
from tests.engine.slow import StandingClock, disk_ground
from tests.engine.test_live_requests import texts, types_of

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "files"])
def on(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    return ground() if request.param == "memory" else disk_ground(tmp_path / "s")


def holding(tmp_path: Path, back: object) -> Agent[str]:
    async def order(_arguments: dict[str, JSON], _call: Call[object]) -> Any:
        return back

    model = script_file(tmp_path / "m.json", {"calls": [call("order")]}, {"text": "done"}, {"text": "more"}, {"text": "end"})
    return Agent("a", model=model, tools=[counting("order", behaviour=order)])


async def test_a_held_call_pauses_the_run_and_its_result_has_it_go_on(on: Ground, tmp_path: Path) -> None:
    agent = holding(tmp_path, Held("the bank has it"))
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        run = await session.send("go")
        paused = await run.result()
        assert isinstance(paused, Paused)
        assert paused.reason == "tool_held"
        assert on.store.owner("s") is None  # whoever has the result may deliver it
        with pytest.raises(SessionBusy):
            await session.send("at once")
        key = paused.waits[0].call_key
        assert key is not None
        on_it = await runtime.deliver(key[:8], "arrived")
        assert on_it is not None
        assert isinstance(await on_it.result(), Completed)
        await runtime.deliver(key, "arrived")
        with pytest.raises(KeyReuse):
            await runtime.deliver(key, "lost")
        with pytest.raises(UnknownCall):
            await runtime.deliver("nothing", "arrived")
    assert types_of(on).count("tool_dispatch_intent") == 1
    assert types_of(on).count("tool_result") == 1


async def test_a_deferred_call_goes_on_at_once_and_its_result_is_told_in_the_next_run(on: Ground, tmp_path: Path) -> None:
    agent = holding(tmp_path, Deferred("order-7", "It is on its way."))
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        assert isinstance(await (await session.send("go")).result(), Completed)
        await session.deliver("order-7", "It is here.")
        assert types_of(on)[-1] == "late_result"
        assert isinstance(await (await session.send("and?")).result(), Completed)
    assert len([text for text in texts(on) if "It is here." in text]) == 1


async def test_the_same_result_by_the_same_handle_changes_nothing_and_another_is_refused(on: Ground, tmp_path: Path) -> None:
    agent = holding(tmp_path, Deferred("order-7", "It is on its way."))
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        await (await session.send("go")).result()
        for round_ in range(2):
            answered = await session.deliver("order-7", "It is here.")
            head = len(types_of(on))
            assert await session.deliver("order-7", "It is here.") == answered
            with pytest.raises(KeyReuse):
                await session.deliver("order-7", "It is lost.")
            for other in ("order", "order-77"):  # a handle is named whole
                with pytest.raises(UnknownCall):
                    await session.deliver(other, "It is here.")
            assert len(types_of(on)) == head
            if round_ == 0:
                await (await session.send("and?")).result()
    assert types_of(on).count("late_result") == 1


@pytest.mark.parametrize("how", ["now", "step_boundary", "stop"])
async def test_a_run_that_waits_for_a_held_call_is_ended_at_once(how: str, on: Ground, tmp_path: Path) -> None:
    agent = holding(tmp_path, Held())
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        await (await session.send("go")).result()
        ended = await (session.stop() if how == "stop" else session.cancel(at=how))  # type: ignore[arg-type]  # one of the two
        assert ended is not None
        assert (await ended.result()).reason == ("max_steps" if how == "stop" else "cancelled")
    result = next(event["record"] for event in events_of(on.store) if event["type"] == "tool_result")
    assert result["outcome"] == ("max_steps" if how == "stop" else "interrupted")
    assert result["reason"] == ("provider_held_stopped" if how == "stop" else "provider_held_cancelled")


async def test_a_cancel_of_a_run_that_waits_needs_no_agent(on: Ground, tmp_path: Path) -> None:
    agent = holding(tmp_path, Held())
    async with Runtime(agents=[agent], ground=on) as runtime:
        await (await runtime.session("s", agent=agent).send("go")).result()
    async with Runtime(recover="manual", ground=on) as other:
        ended = await other.cancel("s", by="operator")
        assert ended is not None
        assert isinstance(await ended.result(), Cancelled)
    assert types_of(on)[-1] == "run_finished"


async def test_a_result_that_is_delivered_where_the_agent_is_not_at_hand_is_kept_for_whoever_has_it(
    on: Ground, tmp_path: Path
) -> None:
    agent = holding(tmp_path, Held())
    async with Runtime(agents=[agent], ground=on) as runtime:
        paused = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(paused, Paused)
    async with Runtime(recover="manual", ground=on) as other:
        await other.deliver(str(paused.waits[0].call_key), "arrived")
    assert types_of(on)[-1] == "late_result"
    async with Runtime(agents=[agent], ground=on) as runtime:
        resumed = await runtime.resume("s")
        assert resumed is not None
        assert isinstance(await resumed.result(), Completed)


async def test_a_held_call_that_is_not_delivered_in_time_is_given_up_and_the_run_goes_on(tmp_path: Path) -> None:
    clock = StandingClock()
    on = disk_ground(tmp_path / "s", clock=clock)
    agent = holding(tmp_path, Held(until=clock.now_ms() / 1000 + 3600))
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        paused = await (await session.send("go", key="k")).result()
        assert isinstance(paused, Paused)
        clock.advance(3599)
        await loop_turns()
        assert isinstance(await (await session.send("go", key="k")).result(), Paused)
        clock.advance(2)
        for _ in range(50):
            await loop_turns()
        assert isinstance(await (await session.send("go", key="k")).result(), Completed)
    result = next(event["record"] for event in events_of(on.store) if event["type"] == "late_result")
    assert result["kind"] == "expired"


async def test_a_result_behind_the_deadline_is_told_whose_result_stands_and_what_to_do_with_the_real_one(tmp_path: Path) -> None:
    clock = StandingClock()
    on = disk_ground(tmp_path / "s", clock=clock)
    agent = holding(tmp_path, Held(until=clock.now_ms() / 1000 + 3600))
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        paused = await (await session.send("go", key="k")).result()
        assert isinstance(paused, Paused)
        clock.advance(3601)
        for _ in range(50):
            await loop_turns()
        assert isinstance(await (await session.send("go", key="k")).end(), Completed)
        head, key = len(types_of(on)), str(paused.waits[0].call_key)
        for _ in range(2):
            with pytest.raises(KeyReuse, match=r"semel's own word that none came.* send it as a message: `semel send`"):
                await session.deliver(key, "The parcel is here.")
        assert len(types_of(on)) == head
        assert isinstance(await (await session.send("The parcel is here.")).result(), Completed)


async def test_a_result_that_somebody_delivered_is_not_called_semels_own(tmp_path: Path) -> None:
    """Negative control: also where he said that the call had expired."""
    on, agent = ground(), holding(tmp_path, Held())
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        paused = await (await session.send("go")).result()
        assert isinstance(paused, Paused)
        key = str(paused.waits[0].call_key)
        ended = await session.deliver(key, "The bank has dropped it.", is_error=True, kind="expired")
        assert ended is not None
        await ended.result()
        with pytest.raises(KeyReuse, match="was given another result before; the first one stands"):
            await session.deliver(key, "The parcel is here.")


async def test_a_runtime_that_starts_behind_the_deadline_of_a_held_call_goes_on_by_itself(tmp_path: Path) -> None:
    clock = StandingClock()
    on = disk_ground(tmp_path / "s", clock=clock)
    agent = holding(tmp_path, Held(until=clock.now_ms() / 1000 + 3600))
    async with Runtime(agents=[agent], ground=on) as runtime:
        await (await runtime.session("s", agent=agent).send("go", key="k")).result()
    clock.advance(4000)
    async with Runtime(agents=[agent], ground=on) as runtime:
        for _ in range(50):
            await loop_turns()
        assert isinstance(await (await runtime.session("s", agent=agent).send("go", key="k")).result(), Completed)


@pytest.mark.parametrize("until", ["soon", -1.0, float("nan"), float("inf")])
def test_a_deadline_that_is_no_time_is_refused_where_it_is_made(until: object) -> None:
    with pytest.raises(ValueError, match="until"):
        Held(until=until)  # type: ignore[arg-type]  # that is the point


async def test_a_handle_that_another_call_has_is_refused_and_the_run_goes_on(on: Ground, tmp_path: Path) -> None:
    async def order(_arguments: dict[str, JSON], _call: Call[object]) -> Any:
        return Deferred("order-7")

    model = script_file(tmp_path / "m.json", {"calls": [call("order"), call("order")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[counting("order", behaviour=order)])
    async with Runtime(agents=[agent], ground=on) as runtime:
        assert isinstance(await (await runtime.session("s", agent=agent).send("go")).result(), Completed)
    assert types_of(on).count("tool_call_deferred") == 1
