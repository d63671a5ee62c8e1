"""A provider that refuses the key ends no run: it waits for another one, and goes on with the bytes that it would have sent."""

from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Cancelled, Completed, Failed, Limits, Paused, Runtime
from semel.adapters.memory.store import Medium
from semel.core import decide as deciding
from semel.core import recover as recovering
from semel.core.effects import ExchangeFailed
from semel.core.records import RunFinished, RunPaused
from semel.core.status import decode_status
from semel.errors import RunNotCompleted, SessionBusy
from semel.ports.log import SessionStore
from semel.ports.model import FailureClass
from semel.testing.model_server import ModelServer
from tests.core.cast import driver
from tests.core.driver import Driver
from tests.core.pausing import leave, refuse_key
from tests.engine.doors import WORDS, attempts, behind_a_door, pauses
from tests.engine.fakes import call, counting, events_of, ground, loop_turns
from tests.engine.test_parked import Pager, paged

pytestmark = pytest.mark.anyio
KEY = "SEMEL_KEY_127_0_0_1"
FIRST, SECOND = "sk-canary-first-8f2c", "sk-canary-second-1d7a"


def types_of(store: SessionStore) -> list[str]:
    return [event["type"] for event in events_of(store)]


async def test_a_refused_key_pauses_the_run_behind_one_request_and_says_where_the_key_came_from(tmp_path: Path) -> None:
    agent, door = behind_a_door(tmp_path, {"text": "done"})
    on = ground()
    async with Runtime(agents=[agent], ground=on) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
        await loop_turns()
        assert on.store.owner("s") is None, "a run that waits is given back"
    assert isinstance(result, Paused)
    assert (result.reason, len(door.asked), pauses(on.store)) == ("auth_required", 1, ["auth_required"])
    assert result.error is not None
    assert result.error.message == WORDS
    with pytest.raises(RunNotCompleted, match=r"SHOP_KEY.*semel resume s"):
        _ = result.output
    published = decode_status(on.store.read_status("s"))
    assert published is not None
    assert (published.state, published.reason, published.exit) == ("paused", "auth_required", 4)
    assert published.error is not None
    assert (published.error.code, published.error.message) == ("auth", WORDS)


async def test_each_resume_asks_once_with_the_same_bytes_and_the_run_goes_on_with_the_right_key(tmp_path: Path) -> None:
    agent, door = behind_a_door(tmp_path, {"text": "done"})
    on = ground()
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        await (await session.send("go")).result()
        for tries in range(2, 5):
            run = await session.resume()
            assert run is not None
            assert isinstance(await run.result(), Paused)
            await loop_turns()
            assert len(door.asked) == tries
        door.open = True
        run = await session.resume()
        assert run is not None
        assert isinstance(await run.result(), Completed)
    assert len(set(door.asked)) == 1
    assert len(door.asked) == 5
    status = decode_status(on.store.read_status("s"))
    assert status is not None
    assert (status.state, status.error) == ("completed", None)


async def test_a_service_that_starts_asks_once_for_a_run_that_waits_for_a_key(tmp_path: Path) -> None:
    agent, door = behind_a_door(tmp_path, {"text": "done"})
    medium = Medium()
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        await (await runtime.session("s", agent=agent).send("go")).result()
    for tries in (2, 3):
        async with Runtime(agents=[agent], ground=ground(medium)):
            await loop_turns()
        assert len(door.asked) == tries
    assert pauses(ground(medium).store) == ["auth_required"] * 3


async def test_attempts_that_were_refused_are_not_counted_among_those_that_were_cut_short(tmp_path: Path) -> None:
    agent, door = behind_a_door(tmp_path, {"text": "done"})
    on = ground()
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        run = await session.send("go")
        for _ in range(11):  # one more than a step may be cut short
            assert isinstance(await run.result(), Paused)
            run = await session.resume()  # type: ignore[assignment]  # a run is open
        door.open = True
        await run.result()
        run = await session.resume()  # type: ignore[assignment]  # as above
        assert isinstance(await run.result(), Completed)
    assert attempts(on.store)[-1] == 13


@pytest.mark.parametrize("how", ["a crash", "a leaving", "a refused key"])
def test_only_an_attempt_that_was_cut_short_counts_towards_the_limit(how: str) -> None:
    d = driver()
    d.send()
    for _ in range(12):
        {"a crash": Driver.die, "a leaving": leave, "a refused key": refuse_key}[how](d)
        d.resume()
        if d.state.run is None:
            break
    ended = d.state.ended[d.state.newest or ""] if d.state.run is None else None
    assert (ended.error.code if ended is not None and ended.error is not None else None) == (
        "step_attempts" if how == "a crash" else None
    )


async def test_messages_that_come_meanwhile_keep_their_places(tmp_path: Path) -> None:
    agent, door = behind_a_door(tmp_path, {"text": "one"}, {"text": "two"}, {"text": "three"})
    on = ground()
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        await (await session.send("go")).result()
        queued = await session.send("next", delivery="queue", key="q")
        await session.steer("hurry", key="s")
        assert types_of(on.store).count("queued") == 1
        door.open = True
        run = await session.resume()
        assert run is not None
        assert isinstance(await run.result(), Completed)
        again = await session.send("next", delivery="queue", key="q")
        assert again.run_id == queued.run_id
        assert isinstance(await again.result(), Completed)
    said = [event["record"] for event in events_of(on.store) if event["type"] == "step_started"]
    assert [step["drained"] != [] for step in said if step["step_id"] == 2] == [True], "the steer joins the step behind it"


async def test_a_plain_send_tries_once_and_is_refused_where_the_run_still_waits(tmp_path: Path) -> None:
    agent, door = behind_a_door(tmp_path, {"text": "one"}, {"text": "two"})
    on = ground()
    async with Runtime(agents=[agent], ground=on) as runtime:
        session = runtime.session("s", agent=agent)
        await (await session.send("go")).result()
        with pytest.raises(SessionBusy, match="auth_required"):
            await session.send("another")
        assert (len(door.asked), types_of(on.store).count("run_started")) == (2, 1)
        door.open = True
        assert isinstance(await (await session.send("another")).result(), Completed)
    assert types_of(on.store).count("run_started") == 2


@pytest.mark.parametrize("how", ["cancel", "stop"])
async def test_a_run_that_waits_for_a_key_can_be_ended_and_its_model_is_not_asked(how: str, tmp_path: Path) -> None:
    agent, door = behind_a_door(tmp_path, {"text": "done"})
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        session = runtime.session("s", agent=agent)
        await (await session.send("go")).result()
        run = await (session.stop() if how == "stop" else session.cancel())
        assert run is not None
        result = await run.result()
    assert isinstance(result, Failed if how == "stop" else Cancelled)
    assert result.reason == ("max_steps" if how == "stop" else "cancelled")
    assert len(door.asked) == 1


async def test_a_key_that_is_refused_behind_a_call_repeats_nothing(tmp_path: Path) -> None:
    pay = counting("pay")
    agent, door = behind_a_door(tmp_path, {"calls": [call("pay")]}, {"text": "done"}, tools=(pay,))
    door.open = True

    async def close(_arguments: object, _call: object) -> str:
        door.open = False
        return "paid"

    pay.behaviour = close
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        session = runtime.session("s", agent=agent)
        assert isinstance(await (await session.send("go")).result(), Paused)
        door.open = True
        run = await session.resume()
        assert run is not None
        assert isinstance(await run.result(), Completed)
    assert (len(pay.keys), len(door.asked)) == (1, 3)


async def test_what_the_provider_forbids_to_a_key_that_it_knows_ends_the_run(tmp_path: Path) -> None:
    agent, door = behind_a_door(tmp_path, {"text": "done"})
    door.failure = FailureClass.PERMISSION
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    assert isinstance(result, Failed)
    assert result.error is not None
    assert result.error.code == "permission"


async def test_a_person_is_told_once_for_a_step_that_waits_for_a_key(tmp_path: Path) -> None:
    pager = Pager()
    agent, _ = behind_a_door(tmp_path, {"text": "done"})
    for _restart in range(3):
        async with Runtime(agents=[agent], ground=paged(tmp_path, pager)) as runtime:
            run = await runtime.session("s", agent=agent).send("go", key="k")
            await run.result()
    (told,) = pager.told
    assert (told.state, told.reason, told.calls, told.why) == ("paused", "auth_required", (), WORDS)


# over HTTP: the key itself


async def test_a_key_that_was_put_right_is_read_anew_by_the_next_attempt_in_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, FIRST)
    fault = {"kind": "status", "status": 401, "body": {"error": {"message": f"bad key {FIRST}"}}, "times": 1}
    on = ground()
    async with ModelServer({"answers": [{"text": "done", "fault": fault}]}) as server:
        agent = Agent("a", model=f"openai_chat:m@{server.url}")
        async with Runtime(agents=[agent], ground=on) as runtime:
            session = runtime.session("s", agent=agent)
            paused = await (await session.send("go")).result()
            assert isinstance(paused, Paused)
            monkeypatch.setenv(KEY, SECOND)
            run = await session.resume()
            assert run is not None
            assert isinstance(await run.result(), Completed)
        first, second = server.requests
    assert [received.headers["authorization"] for received in (first, second)] == [f"Bearer {FIRST}", f"Bearer {SECOND}"]
    assert first.body == second.body
    assert paused.error is not None
    everything = str(events_of(on.store)) + str(on.store.read_status("s")) + str(paused)
    assert f"the key came from {KEY}" in everything, "where it came from is told"
    assert FIRST not in everything
    assert SECOND not in everything
    assert "run_refrozen" not in types_of(on.store), "another key in the same shape changes nothing that is frozen"


def with_auth(url: str, auth: str, **more: Any) -> Agent[str]:
    return Agent("a", model=f"openai_chat:m@{url}", model_options={"dialect": {"auth": auth}, **more})


async def test_p11_a_run_that_no_model_has_answered_goes_on_with_another_way_to_show_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, FIRST)
    medium, fault = Medium(), {"kind": "status", "status": 401, "times": 1}
    async with ModelServer({"answers": [{"text": "done", "fault": fault}]}) as server:
        before, after = with_auth(server.url, "api-key"), with_auth(server.url, "bearer")
        async with Runtime(agents=[before], ground=ground(medium)) as runtime:
            assert isinstance(await (await runtime.session("s", agent=before).send("go")).result(), Paused)
        async with Runtime(agents=[after], ground=ground(medium), recover="manual") as runtime:
            run = await runtime.resume("s")
            assert run is not None
            assert isinstance(await run.result(), Completed)
        first, second = server.requests
    assert (first.headers["api-key"], second.headers["authorization"]) == (FIRST, f"Bearer {FIRST}")
    assert first.body == second.body
    on = ground(medium).store
    assert types_of(on)[types_of(on).index("resume_started") :][:3] == ["resume_started", "run_refrozen", "step_started"]


@pytest.mark.parametrize("what", ["behind an answer", "another model", "another limit"])
async def test_p11_nothing_but_the_door_is_frozen_anew_and_nothing_behind_an_answer(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, FIRST)
    medium, fault = Medium(), {"kind": "status", "status": 401, "times": 1}
    answers: list[Any] = [{"text": "done", "fault": fault}]
    if what == "behind an answer":
        answers = [{"calls": [call("look")]}, *answers]
    async with ModelServer({"answers": answers}) as server:
        before = with_auth(server.url, "api-key")
        after = {
            "behind an answer": with_auth(server.url, "bearer"),
            "another model": Agent("a", model=f"openai_chat:other@{server.url}", model_options={"dialect": {"auth": "bearer"}}),
            "another limit": with_auth(server.url, "bearer", max_output_tokens=7),
        }[what]
        look = counting("look")
        for agent in (before, after):
            object.__setattr__(agent, "tools", (look,))
        async with Runtime(agents=[before], ground=ground(medium)) as runtime:
            assert isinstance(await (await runtime.session("s", agent=before).send("go")).result(), Paused)
        async with Runtime(agents=[after], ground=ground(medium), recover="manual") as runtime:
            run = await runtime.resume("s")
            assert run is not None
            assert isinstance(await run.result(), Completed)
        *_, refused, last = server.requests
    assert (refused.headers["api-key"], last.headers["api-key"]) == (FIRST, FIRST)
    assert refused.body == last.body
    assert "run_refrozen" not in types_of(ground(medium).store)


# controls


async def test_a_build_that_ends_the_run_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = deciding._exchange_failed

    def wrong(state: Any, run: Any, step: Any, outcome: ExchangeFailed, now_ms: int) -> Any:
        decision = right(state, run, step, outcome, now_ms)
        ends = RunFinished(run_id=run.run_id, reason="error", usage=run.usage)
        records = tuple(ends if isinstance(record, RunPaused) else record for record in decision.records)
        return type(decision)(records=records)

    monkeypatch.setattr(deciding, "_exchange_failed", wrong)
    with pytest.raises(AssertionError):
        await test_a_refused_key_pauses_the_run_behind_one_request_and_says_where_the_key_came_from(tmp_path)


async def test_a_build_that_counts_refusals_as_crashes_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from msgspec.structs import replace

    right = recovering._redo
    monkeypatch.setattr(recovering, "_redo", lambda state, run, step, anew: right(state, run, replace(step, put_off=0), anew))
    with pytest.raises(AssertionError):
        await test_attempts_that_were_refused_are_not_counted_among_those_that_were_cut_short(tmp_path)


def test_the_limit_of_attempts_is_what_these_tests_believe() -> None:
    assert Limits().frozen().step_attempts == 10
