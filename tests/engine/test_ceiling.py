"""W10-W13, HAZ2, T14: a full session refuses without writing, still ends by name, still takes a verdict, and stays readable."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Failed, Runtime
from semel.adapters.memory.store import Medium, MemoryStore, MemoryWriter
from semel.adapters.system import SystemClock, SystemIds
from semel.core.ceiling import has_ended_full
from semel.core.codec import decode
from semel.core.features import KNOWN
from semel.core.frame import TailKind, incomplete, scan
from semel.core.open_log import finding, state_of
from semel.core.records import Retracted
from semel.core.state import Session
from semel.core.transcript import history_of
from semel.core.values import JSON, Effect, ToolMessage, UserMessage
from semel.engine.resume import Ground
from semel.engine.session import SessionActor
from semel.errors import LeaseLost, OutcomeUnknown, SessionFull
from semel.faces.results import Result
from semel.ports.tool import Call
from tests.engine.fakes import Behaviour, CountingTool, call, counting, loop_turns, script_file

pytestmark = pytest.mark.anyio

CEILING = 64 * 1024
SIZES = (0, 1, 8000, 8001)
NEAR = (-2, -1, 0, 1, 2)


@dataclass
class Ending:
    """What a session came to: its state, its log, and whether what was tried found room."""

    state: Session
    log: bytes
    whole: bool

    def __post_init__(self) -> None:
        assert len(self.log) <= CEILING
        assert scan(self.log).tail.kind is TailKind.CLEAN
        assert self.state.run is None
        assert self.log.count(b'"type":"run_finished"') == len(list(self.state.ended.values()))


def ground_on(medium: Medium, kind: type[MemoryStore] = MemoryStore) -> Ground:
    clock = SystemClock()
    return Ground(store=kind(clock, known=KNOWN, medium=medium, ceiling_bytes=CEILING), clock=clock, ids=SystemIds())


def read(medium: Medium) -> tuple[Session, bytes]:
    log = bytes(medium.logs["s"].data)
    frames = scan(log).frames
    return state_of(frames, incomplete(frames), "s"), log


def saying(text: str) -> Behaviour:
    async def act(_arguments: object, _call: Call[object]) -> str:
        return text

    return act


async def losing(_arguments: object, _call: Call[object]) -> str:
    raise OutcomeUnknown("the line went dead")


def agent_for(kind: str, size: int, path: Path) -> Agent:
    text = "x" * size
    if kind == "model":
        return Agent("a", model=script_file(path, {"text": text}))
    if kind == "terminal":
        return Agent(
            "a", model=script_file(path, {"fault": {"kind": "status", "status": 400, "body": {"error": {"message": text}}}})
        )
    behaviour = losing if kind == "verdict" else saying(text)
    return Agent(
        "a", model=script_file(path, {"calls": [call("pay")]}, {"text": "."}), tools=[counting("pay", behaviour=behaviour)]
    )


async def ending(kind: str, size: int, pad: int, path: Path) -> Ending | None:
    """A run behind a first message of `pad` bytes; None if there was no room even for that message."""
    medium = Medium()
    agent = agent_for(kind, size, path)
    async with Runtime(agents=[agent], ground=ground_on(medium)) as runtime:
        try:
            run = await runtime.session("s", agent=agent).send("p" * pad, key="k")
        except SessionFull:
            assert not medium.logs["s"].data
            return None
        await run.rest()
        whole = True
        if kind == "verdict":
            found = read(medium)
            if not found[0].unknown:
                return Ending(*found, whole=False)
            key = found[0].unknown[0].call_key
            before = bytes(medium.logs["s"].data)
            try:
                await runtime.resolve(key, "happened", output="x" * size)
            except SessionFull:
                assert bytes(medium.logs["s"].data) == before
                whole = False
                await runtime.resolve(key, "did_not_happen", note="seen in the books")
            assert not read(medium)[0].unknown
    state, log = read(medium)
    error = state.ended[state.newest or ""].error
    if kind != "verdict":
        whole = error is None or error.code != "session_too_large"
    return Ending(state, log, whole)


async def last_pad(kind: str, size: int, path: Path) -> int:
    """The longest first message behind which all of it still fits."""
    low, high = 0, CEILING
    while high - low > 1:
        middle = (low + high) // 2
        found = await ending(kind, size, middle, path)
        low, high = (middle, high) if found is not None and found.whole else (low, middle)
    return low


@pytest.mark.parametrize("kind", ["model", "tool", "terminal", "verdict"])
async def test_t14_at_the_brink_a_record_fits_whole_or_the_session_is_closed_by_name(kind: str, tmp_path: Path) -> None:
    cases = 0
    for size in SIZES:
        brink = await last_pad(kind, size, tmp_path / "m.json")
        for near in NEAR:
            found = await ending(kind, size, brink + near, tmp_path / "m.json")
            cases += 1
            if found is None:
                assert near > 0
                continue
            assert found.whole == (near <= 0), (size, near)
    print(f"T14 {kind}: {cases} cases at a ceiling of {CEILING} bytes")
    assert cases == len(SIZES) * len(NEAR) == 20


ROUNDS = [{"calls": [call("pay"), call("look"), call("read")]}] * 6


def three_tools(sizes: Sequence[int], behaviour: Behaviour | None = None) -> list[CountingTool]:
    """A once, an idempotent and a read call, with results of these sizes; `behaviour` is what the once call does."""
    effects = {"pay": Effect.ONCE, "look": Effect.IDEMPOTENT, "read": Effect.READ}
    tools = [counting(name, effect, saying("x" * size)) for (name, effect), size in zip(effects.items(), sizes, strict=True)]
    return [replace(tools[0], behaviour=behaviour or tools[0].behaviour), *tools[1:]]


async def filled(medium: Medium, pad: int, sizes: Sequence[int], path: Path, *, die_at: int | None = None) -> Ground:
    """Rounds of three calls until the log is full; the process dies within the payment number `die_at`. What it ran on."""
    ground, payments = ground_on(medium), 0
    assert isinstance(ground.store, MemoryStore)
    store, model = ground.store, script_file(path, *ROUNDS, {"text": "done"})

    async def pay(_arguments: object, _call: Call[object]) -> str:
        nonlocal payments, ground
        payments += 1
        if payments == die_at:
            store.crash()
        return "x" * sizes[0]

    agent = Agent("a", model=model, tools=three_tools(sizes, pay))
    with suppress(LeaseLost):
        async with Runtime(agents=[agent], ground=ground, recover="manual") as runtime:
            run = await runtime.session("s", agent=agent).send("p" * pad, key="k")
            await run.rest()
    if die_at is not None and die_at <= payments:
        ground = ground_on(medium)
        again = Agent("a", model=model, tools=three_tools(sizes))
        async with Runtime(agents=[again], ground=ground, recover="manual") as runtime:
            resumed = await runtime.resume("s")
            if resumed is not None:
                await resumed.rest()
    return ground


async def verdicts_and_refusal(ground: Ground, medium: Medium, path: Path) -> Ending:
    """Each unknown call gets its verdict, then a message is refused by name, with nothing written."""
    agent = Agent("a", model=script_file(path, {"text": "."}))
    async with Runtime(agents=[agent], ground=ground, recover="manual") as runtime:
        for item in runtime.inbox():
            await runtime.resolve(item.call.call_key, "abandoned", note="nobody can tell" * 100)
        before = bytes(medium.logs["s"].data)
        ended_full = has_ended_full(read(medium)[0])
        with pytest.raises(SessionFull, match="Start a new session"):
            await runtime.session("s", agent=agent).send("q" * (1 if ended_full else CEILING), key="next")
        assert bytes(medium.logs["s"].data) == before
    return Ending(*read(medium), whole=False)


@pytest.mark.parametrize("die_at", [None, 1, 2, 3, 4, 5, 6])
async def test_haz2_a_session_that_fills_up_within_a_batch_closes_wherever_it_died(die_at: int | None, tmp_path: Path) -> None:
    ends: Counter[str] = Counter()
    for seed in range(12):
        rng, medium = random.Random(seed), Medium()
        sizes = [rng.choice((0, 200, 300, 5000, 20000)) for _ in range(3)]
        ground = await filled(medium, rng.randrange(20000, 57000), sizes, tmp_path / "m.json", die_at=die_at)
        found = await verdicts_and_refusal(ground, medium, tmp_path / "n.json")
        ended = found.state.ended[found.state.newest or ""]
        ends[ended.error.code if ended.error else ended.reason] += 1
        log = found.log.decode()
        assert log.count('"type":"run_finished"') == 1
        assert not found.state.unknown
    print(f"killed in payment {die_at}: {dict(ends)}")
    assert ends.total() == 12
    assert ends["session_too_large"] + ends["interrupted"] >= 6


async def test_a_result_that_does_not_fit_is_settled_completed_with_a_notice(tmp_path: Path) -> None:
    medium = Medium()
    await filled(medium, 31000, (30000, 10, 10), tmp_path / "m.json")
    state, log = read(medium)
    ended = state.ended[state.newest or ""]
    assert (ended.reason, ended.error.code if ended.error else "") == ("error", "session_too_large")
    assert b"its result of 30000 bytes was not kept" in log
    said = history_of(state, finding(scan(log).frames))
    assert [message.text for message in said if isinstance(message, ToolMessage)][1:] == ["x" * 10, "x" * 10]
    assert b'"outcome":"completed"' in log
    assert not state.unknown


async def reading_that_died(pad: int, path: Path) -> tuple[Session, bytes]:
    """A read call during which the process died, resumed by another one."""
    medium = Medium()
    store = ground_on(medium).store
    assert isinstance(store, MemoryStore)
    model = script_file(path, {"calls": [call("read")]}, {"text": "."})

    async def die(_arguments: object, _call: Call[object]) -> str:
        store.crash()
        return ""

    for ground, behaviour in ((replace(ground_on(medium), store=store), die), (ground_on(medium), saying("again"))):
        agent = Agent("a", model=model, tools=[counting("read", Effect.READ, behaviour)])
        async with Runtime(agents=[agent], ground=ground, recover="manual") as runtime:
            with suppress(LeaseLost):
                handle = runtime.session("s", agent=agent)
                run = await (handle.send("p" * pad, key="k") if behaviour is die else handle.resume())
                if run is not None:
                    await run.rest()
    return read(medium)


async def test_a_resume_within_the_reserve_leaves_out_resume_started(tmp_path: Path) -> None:
    found: Counter[tuple[bool, bool]] = Counter()
    for pad in range(47000, 55000, 50):
        _, log = await reading_that_died(pad, tmp_path / "m.json")
        if b"tool_dispatch_intent" in log:
            found[b'"resume_started"' in log, b'"tool_rerun"' in log] += 1
    print(f"resumes by (says that it resumed, runs the call again): {dict(found)}")
    assert found[True, True]
    assert found[False, True]


class BlindWriter(MemoryWriter):
    """The planted fault: it does not see how long its log is, so that nothing is kept free."""

    @property
    def size_bytes(self) -> int:
        return -CEILING if self._point.offset else 0


class BlindStore(MemoryStore):
    async def open(self, session: str, **given: Any) -> MemoryWriter:
        writer = await super().open(session, **given)
        writer.__class__ = BlindWriter
        return writer


async def test_canary_without_a_reserve_a_full_session_cannot_be_closed(tmp_path: Path) -> None:
    stuck = 0
    for pad in range(51000, 54000, 100):
        medium = Medium()
        model = script_file(tmp_path / "m.json", {"calls": [call("pay")]})
        agent = Agent("a", model=model, tools=[counting("pay", behaviour=saying("x" * 9000))])
        async with Runtime(agents=[agent], ground=ground_on(medium, BlindStore), recover="manual") as runtime:
            with suppress(SessionFull):
                run = await runtime.session("s", agent=agent).send("p" * pad, key="k")
                await run.rest()
        stuck += read(medium)[0].run is not None
    print(f"{stuck} sessions that nothing can close")
    assert stuck


def full_of_messages(tmp_path: Path, gate: asyncio.Event, begun: asyncio.Event) -> Agent[str]:
    """An agent whose tool waits and then brings more than the log holds."""

    async def bring(_arguments: object, _call: Call[object]) -> str:
        begun.set()
        await gate.wait()
        return "x" * CEILING

    model = script_file(tmp_path / "m.json", {"calls": [call("look")]}, {"text": "y" * CEILING})
    return Agent("a", model=model, tools=[counting("look", Effect.READ, behaviour=bring)])


async def queue_in_a_session_that_fills_up(count: int, context: JSON, medium: Medium, tmp_path: Path) -> list[Result[str]]:
    """What a run and the messages behind it come to; those that waited when it ended say so."""
    gate, begun = asyncio.Event(), asyncio.Event()
    agent = full_of_messages(tmp_path, gate, begun)
    async with Runtime(agents=[agent], ground=ground_on(medium)) as runtime:
        runs = [await runtime.session("s", agent=agent).send("go")]
        await begun.wait()
        box = runtime.session("s", agent=agent, context=context)
        runs += [await box.send(f"queued {at}", key=f"q{at}", delivery="queue") for at in range(count)]
        gate.set()
        results = [await run.result() for run in runs[: count + 1 if context is None else 1]]
        await loop_turns()  # a result is told before what is behind it has been begun
    with pytest.raises(SessionFull):
        async with Runtime(agents=[agent], ground=ground_on(medium)) as runtime:
            await runtime.session("s", agent=agent).send("more")
    return results


async def test_p9_a_queued_message_of_a_session_that_fills_up_gets_its_run_which_ends_by_name(tmp_path: Path) -> None:
    medium = Medium()
    results = await queue_in_a_session_that_fills_up(2, None, medium, tmp_path)
    codes = [result.error.code for result in results if isinstance(result, Failed) and result.error]
    assert codes == ["session_too_large"] * 3
    state, log = read(medium)
    assert (state.queue, len(log) <= CEILING) == ((), True)
    said = [message.text for message in history_of(state, finding(scan(log).frames)) if isinstance(message, UserMessage)]
    assert said == ["go", "queued 0", "queued 1"]


async def test_q16_a_queued_message_whose_start_does_not_fit_is_given_back_and_says_why(tmp_path: Path) -> None:
    medium = Medium()
    await queue_in_a_session_that_fills_up(1, "c" * (CEILING * 6 // 10), medium, tmp_path)
    state, log = read(medium)
    assert (state.queue, len(log) <= CEILING) == ((), True)
    (given_back,) = [record for frame in scan(log).frames[1:] if isinstance(record := decode(frame), Retracted)]
    assert given_back.failure is not None
    assert given_back.failure.error.code == "session_too_large"


async def test_canary_a_process_that_only_refuses_leaves_the_message_in_the_queue_of_a_full_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise SessionFull("the log is full")

    monkeypatch.setattr(SessionActor, "_close_queued", refuse)
    medium = Medium()
    await queue_in_a_session_that_fills_up(1, "c" * (CEILING * 6 // 10), medium, tmp_path)
    assert [message.key for message in read(medium)[0].queue] == ["q0"]
