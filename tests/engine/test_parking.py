"""P2, P3: the open run of a copy or of a repaired log is closed, and every call that may have been sent waits for a person."""

from collections import Counter
from pathlib import Path

import pytest
from msgspec import json

from semel import Agent, Runtime
from semel.adapters.memory.store import Medium, MemoryLog, MemoryStore
from semel.core import parking
from semel.core.calls import Batch
from semel.core.frame import Frame, incomplete, line_of, scan
from semel.core.open_log import state_of
from semel.core.outcomes import Settlement
from semel.core.state import Run, Session
from semel.core.values import Effect
from semel.engine.park import park
from tests.engine.fakes import CountingTool, call, counting, ground, script_file

pytestmark = pytest.mark.anyio


def tools() -> list[CountingTool]:
    return [counting("pay"), counting("look", Effect.READ)]


async def whole_log(model: str) -> tuple[Frame, ...]:
    medium = Medium()
    agent = Agent("a", model=model, tools=tools())
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        await (await runtime.session("s", agent=agent).send("hi", key="k")).result()
    return scan(bytes(medium.logs["s"].data)).frames


def on_medium(frames: tuple[Frame, ...]) -> Medium:
    data = b"".join(map(line_of, frames))
    medium = Medium()
    medium.logs["s"] = MemoryLog(data=bytearray(data), synced_bytes=len(data))
    return medium


def state_on(medium: Medium) -> Session:
    frames = scan(bytes(medium.logs["s"].data)).frames
    return state_of(frames, incomplete(frames), "s")


def open_once_calls(frames: tuple[Frame, ...]) -> set[int]:
    """The payments of the open batch that have an intent and no result, by ordinal; also where their write is not whole."""
    opened: set[int] = set()
    for frame in frames:
        record = json.decode(frame.payload)
        if record["type"] == "tool_dispatch_intent" and record["ordinal"] != 1:
            opened.add(record["ordinal"])
        elif record["type"] in ("tool_result", "tool_call_returned", "tool_no_dispatch"):
            opened.discard(record["ordinal"])
    return opened


def says_that_nothing_happened(medium: Medium) -> bool:
    return b"Nothing happened" in bytes(medium.logs["s"].data)


async def test_every_prefix_of_a_log_is_parked_without_sending_anything(tmp_path: Path) -> None:
    batch = {"calls": [call("pay"), call("look"), call("pay")]}
    model = script_file(tmp_path / "m.json", batch, batch, {"text": "done"})
    frames = await whole_log(model)
    ends: Counter[str] = Counter()
    torn = 0
    for kept in range(2, len(frames) + 1):
        medium = on_medium(frames[:kept])
        was_open = state_on(medium).run is not None
        unknown = await park(ground(medium), "s")
        state = state_on(medium)
        assert state.run is None
        assert {call.ordinal for call in state.unknown} >= open_once_calls(frames[:kept])
        assert not says_that_nothing_happened(medium)
        assert unknown == tuple(call.call_key for call in state.unknown)
        assert await park(ground(medium), "s") == ()
        torn += any(b'"type":"tool_dispatch_intent"' in frames[seq].payload for seq in incomplete(frames[:kept]))
        ended = state.ended[state.newest or ""]
        ends["interrupted" if unknown else ended.error.code if ended.error else ended.reason] += 1
        assert was_open or not unknown
        paid = tools()
        agent = Agent("a", model=model, tools=paid)
        async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
            assert await runtime.resume("s") is None
        assert not any(tool.keys for tool in paid)
    print(f"{ends.total()} prefixes: {dict(ends)}; {torn} of them with an intent in a write that is not whole")
    assert torn >= 4
    assert ends.total() == len(frames) - 1 >= 25
    assert ends["interrupted"] >= 6
    assert ends["parked"] >= 10


async def test_canary_a_torn_intent_that_is_taken_for_never_sent_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = parking._settled

    def trusting(state: Session, run: Run, batch: Batch) -> dict[int, Settlement]:
        return {at: one for at, one in real(state, run, batch).items() if not batch.calls[at].torn_intent}

    monkeypatch.setattr(parking, "_settled", trusting)
    with pytest.raises(AssertionError):
        await test_every_prefix_of_a_log_is_parked_without_sending_anything(tmp_path)


async def test_canary_a_prefix_that_is_not_parked_is_carried_on(tmp_path: Path) -> None:
    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "done"})
    looked = counting("look", Effect.READ)
    agent = Agent("a", model=model, tools=[looked])
    medium = Medium()
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        await (await runtime.session("s", agent=agent).send("hi", key="k")).result()
    frames = scan(bytes(medium.logs["s"].data)).frames
    intent = next(frame.seq for frame in frames if b"tool_dispatch_intent" in frame.payload)
    again = on_medium(frames[: intent + 1])
    assert isinstance(ground(again).store, MemoryStore)
    async with Runtime(agents=[agent], ground=ground(again), recover="manual") as runtime:
        run = await runtime.resume("s")
        assert run is not None
        await run.rest()
    assert len(looked.keys) == 2
