"""Hooks: what each may change, what becomes of one that breaks, and that what it did is in the log and is not asked for again."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Completed, PostAssistant, PostTool, PreTool, PreUser, Refuse, Runtime
from semel.adapters.memory.store import MemoryStore
from semel.adapters.system import SystemIds
from semel.core.features import KNOWN
from semel.core.rules import Rule
from semel.core.values import Effect, ToolSpec
from semel.engine.hooks import HOOK_SECONDS, Asker
from semel.engine.resume import Ground
from semel.errors import BadAgent, HookRefused, KeyReuse
from semel.faces.agent import PHASES
from semel.ports.tool import Call
from tests.core.said import said_in
from tests.engine.fakes import CountingTool, call, counting, events_of, ground, script_file
from tests.engine.slow import StandingClock

pytestmark = pytest.mark.anyio

SCHEMA = '{"type":"object","properties":{"cents":{"type":"integer"}},"additionalProperties":false}'


def shop(tmp_path: Path, pay: CountingTool, **more: Any) -> Agent[str]:
    """An agent that pays 6000 cents, looks, and says so."""
    calls = [call("pay", cents=6000), call("look")]
    model = script_file(tmp_path / "m.json", {"text": "I pay.", "calls": calls}, {"text": "It is paid."})
    return Agent("a", model=model, tools=[pay, counting("look", Effect.READ)], **more)


def paying(given: list[Any] | None = None) -> CountingTool:
    async def act(arguments: object, _call: object) -> str:
        if given is not None:
            given.append(arguments)
        return "paid with card 4711"

    return CountingTool(spec=ToolSpec(name="pay", description="pay", parameters=SCHEMA), behaviour=act)


async def carry(agent: Agent[str], at: Ground, text: str = "go", key: str | None = None) -> Any:
    async with Runtime(agents=[agent], ground=at) as runtime:
        return await (await runtime.session("s", agent=agent).send(text, key=key)).result()


def records(at: Ground, kind: str) -> list[dict[str, Any]]:
    return [event["record"] for event in events_of(at.store) if event["type"] == kind]


def results(at: Ground) -> list[str]:
    return [message.text for message in said_in(at.store, "s") if hasattr(message, "tool_call_id")]


# what each may do


async def test_a_pre_user_hook_prepares_the_message_once_and_the_key_stands_for_what_was_sent(tmp_path: Path) -> None:
    asked: list[PreUser] = []

    def hide(told: PreUser) -> str:
        asked.append(told)
        return told.text.replace("4711", "****")

    at, agent = ground(), shop(tmp_path, paying(), pre_user=hide)
    await carry(agent, at, "my card is 4711", "k1")
    (started,) = records(at, "run_started")
    assert "my card is ****" in json.dumps(started["entries"])
    (note,) = started["hooks"]
    assert (note["phase"], note["hook"], note["verdict"]) == ("pre_user", "hide", "changed")
    assert note["messages"][0]["text"] == "my card is 4711"
    head = len(events_of(at.store))
    await carry(agent, at, "my card is 4711", "k1")
    assert (len(asked), len(events_of(at.store))) == (1, head)
    with pytest.raises(KeyReuse):
        await carry(agent, at, "my card is ****", "k1")


async def test_a_post_assistant_hook_changes_what_the_model_is_known_to_have_said_and_not_its_calls(tmp_path: Path) -> None:
    async def polite(told: PostAssistant) -> str:
        return told.text + " Please."

    at = ground()
    result = await carry(shop(tmp_path, paying(), post_assistant=polite), at)
    assert isinstance(result, Completed)
    assert result.output == "It is paid. Please."
    first, second = records(at, "model_step_finished")
    assert [block["type"] for block in first["assistant_message"]["content"]["blocks"]] == ["text", "tool_call", "tool_call"]
    assert second["hooks"][0]["answer"]["blocks"][0]["text"] == "It is paid."


async def test_text_that_a_hook_changed_is_withdrawn_from_those_who_saw_it_arrive(tmp_path: Path) -> None:
    agent = shop(tmp_path, paying(), post_assistant=lambda told: told.text.upper())
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        live = [event["live"] async for event in run.events(after=0, live=True) if "live" in event]
    assert live.count("discarded") == 2


async def test_a_pre_tool_hook_changes_the_arguments_and_the_model_keeps_seeing_its_own(tmp_path: Path) -> None:
    given: list[Any] = []
    seen: list[PreTool] = []

    def cap(told: PreTool) -> dict[str, Any] | None:
        seen.append(told)
        return {"cents": min(told.arguments["cents"], 5000)} if told.tool == "pay" else None

    at = ground()
    rules = [Rule("deny", "pay", when="cents > 5000")]  # ruled on as the hook left it
    await carry(shop(tmp_path, paying(given), pre_tool=cap, policy=rules), at)
    assert given == [{"cents": 5000}]
    assert [told.tool for told in seen] == ["pay", "look"]
    intents = records(at, "tool_dispatch_intent")
    assert [intent.get("args") for intent in intents] == ['{"cents":5000}', None]
    said = said_in(at.store, "s")[1]
    assert '"cents":6000' in said.calls[0].arguments.replace(" ", "")  # type: ignore[union-attr]  # an answer


async def test_the_first_pre_tool_hook_that_says_no_is_the_last_that_is_asked_and_any_no_wins(tmp_path: Path) -> None:
    asked: list[str] = []

    def first(told: PreTool) -> None:
        asked.append(f"first {told.tool}")

    def second(told: PreTool) -> Refuse | None:
        asked.append(f"second {told.tool}")
        return Refuse("Pay on weekdays.") if told.tool == "pay" else None

    def third(told: PreTool) -> None:
        asked.append(f"third {told.tool}")

    at, pay = ground(), paying()
    await carry(shop(tmp_path, pay, pre_tool=[first, second, third], policy=[Rule("allow")]), at)
    assert asked == ["first pay", "second pay", "first look", "second look", "third look"]
    assert not pay.keys
    assert [record["reason"] for record in records(at, "tool_no_dispatch")] == ["hook_denied"]
    assert results(at) == ["Not run: a check of this agent does not allow it. Pay on weekdays.", "look ok"]


async def test_a_post_tool_hook_changes_what_the_model_reads_and_the_note_keeps_what_the_tool_gave(tmp_path: Path) -> None:
    def hide(told: PostTool) -> str:
        return told.text.replace("4711", "****")

    at = ground()
    await carry(shop(tmp_path, paying(), post_tool=hide), at)
    assert results(at) == ["paid with card ****", "look ok"]
    (note,) = [note for event in events_of(at.store) for note in event["record"].get("hooks", ())]
    assert (note["phase"], note["verdict"], note["output"]["text"]) == ("post_tool", "changed", "paid with card 4711")


async def test_a_hook_cannot_change_what_it_was_given(tmp_path: Path) -> None:
    def greedy(told: Any) -> None:
        told.context["tenant"] = "other"
        if isinstance(told, PreTool | PostTool):
            told.arguments["cents"] = 0

    given: list[Any] = []
    agent = shop(tmp_path, paying(given), **dict.fromkeys(PHASES, greedy))
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        run = await runtime.session("s", agent=agent, context={"tenant": "acme"}).send("go")
        await run.result()
    assert given == [{"cents": 6000}]


# what becomes of one that breaks


class Standing:
    """A process in memory whose time a hook lets pass."""

    def __init__(self) -> None:
        self.clock = StandingClock()
        self.ground = Ground(store=MemoryStore(self.clock, known=KNOWN), clock=self.clock, ids=SystemIds())


def raise_it(error: BaseException) -> Callable[[Standing], Callable[[Any], object]]:
    def make(_place: Standing) -> Callable[[Any], object]:
        async def broken(_told: object) -> None:
            raise error

        return broken

    return make


def raise_in_thread(_place: Standing) -> Callable[[Any], object]:
    def broken(_told: object) -> None:
        raise KeyboardInterrupt

    return broken


def hang(place: Standing) -> Callable[[Any], object]:
    async def hanging(_told: object) -> None:
        place.clock.advance(HOOK_SECONDS)
        await asyncio.Event().wait()

    return hanging


def give(value: object) -> Callable[[Standing], Callable[[Any], object]]:
    return lambda _place: lambda _told: value


FAULTS: dict[str, tuple[Callable[[Standing], Callable[[Any], object]], str]] = {
    "raises": (raise_it(ValueError("no\x1b[31m luck")), "ValueError: no [31m luck"),
    "raises a group": (raise_it(ExceptionGroup("both", [ValueError("a"), KeyError("b")])), "ValueError: a"),
    "exits": (raise_it(SystemExit(3)), "SystemExit"),
    "is cancelled": (raise_it(asyncio.CancelledError()), "CancelledError"),
    "is interrupted in its thread": (raise_in_thread, "KeyboardInterrupt"),
    "hangs": (hang, "it did not answer within 30 s"),
    "returns a number": (give(5), "it returned int"),
    "returns a coroutine's like": (give(object()), "it returned object"),
}


def ended_as(phase: str, at: Ground) -> list[str]:
    """What the model read of the two calls, or what it is known to have said, where a hook of that phase broke."""
    if phase == "post_assistant":
        return [message.text for message in said_in(at.store, "s") if hasattr(message, "blocks")]
    return results(at)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("phase", PHASES)
async def test_v33_no_fault_of_a_hook_gets_into_the_loop_and_each_phase_has_its_safe_end(
    tmp_path: Path, phase: str, fault: str
) -> None:
    place, (make, why), pay = Standing(), FAULTS[fault], paying()
    agent = shop(tmp_path, pay, **{phase: make(place)})
    if phase == "pre_user":
        with pytest.raises(HookRefused, match="failed, so the message was not accepted") as caught:
            await carry(agent, place.ground)
        assert why in str(caught.value)
        assert not place.ground.store.exists("s") or not events_of(place.ground.store)
        return
    assert isinstance(await carry(agent, place.ground), Completed)
    found = ended_as(phase, place.ground)
    assert all(text.isprintable() for text in found)
    if phase == "post_assistant":
        assert found == ["I pay.", "It is paid."]
        notes = [note for record in records(place.ground, "model_step_finished") for note in record["hooks"]]
        assert [note["verdict"] for note in notes] == ["failed", "failed"]
        assert all(why in note["message"] for note in notes)
        return
    assert all(why in text for text in found)
    if phase == "pre_tool":
        assert not pay.keys
        assert [record["reason"] for record in records(place.ground, "tool_no_dispatch")] == ["pre_tool_unavailable"] * 2
    else:
        assert len(pay.keys) == 1, "the call ran once, whatever its hook did"
        assert all(text.startswith("The call ran, but its result cannot be shown.") for text in found)
        assert all(record["outcome"] == "completed" for record in records(place.ground, "tool_result"))
        kept = [note["output"]["text"] for event in events_of(place.ground.store) for note in event["record"].get("hooks", ())]
        assert kept == ["paid with card 4711", "look ok"]


@pytest.mark.parametrize("phase", PHASES)
async def test_v33_a_hook_that_is_not_guarded_would_be_caught(
    tmp_path: Path, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unguarded(hook: Any, told: object) -> object:
        return await hook.act(told)

    monkeypatch.setattr("semel.engine.hooks._guarded", unguarded)
    place = Standing()
    with pytest.raises(ValueError, match="luck"):
        await carry(shop(tmp_path, paying(), **{phase: FAULTS["raises"][0](place)}), place.ground)


LOOP: dict[str, object] = {}
LOOP["cents"] = LOOP
ODD_ARGUMENTS: dict[str, object] = {
    "of another type": {"cents": "many"},
    "with a name that is not there": {"cents": 5, "to": "x"},
    "that are not finite": {"cents": float("nan")},
    "that are no JSON": {"cents": object()},
    "that hold themselves": ((loop := {}) and loop) or loop,
}
loop["cents"] = loop


@pytest.mark.parametrize("odd", ODD_ARGUMENTS)
async def test_arguments_of_a_hook_are_held_to_the_schema_of_the_tool(tmp_path: Path, odd: str) -> None:
    at, pay = ground(), paying()
    await carry(shop(tmp_path, pay, pre_tool=lambda told: ODD_ARGUMENTS[odd] if told.tool == "pay" else None), at)
    assert not pay.keys
    assert [record["reason"] for record in records(at, "tool_no_dispatch")] == ["pre_tool_unavailable"]


async def test_hooks_are_not_asked_about_calls_that_are_refused_before_them(tmp_path: Path) -> None:
    asked: list[str] = []
    calls = [call("ghost"), call("pay", cents="many"), {"name": "pay", "raw": "[1]"}]
    model = script_file(
        tmp_path / "m.json", {"calls": calls}, {"calls": [call("pay", cents=1)], "stop": "max_tokens"}, {"text": "x"}
    )
    agent = Agent("a", model=model, tools=[paying()], pre_tool=lambda told: asked.append(told.tool))
    await carry(agent, ground())
    assert not asked


# once


@pytest.mark.parametrize("dies", ["while the call is out", "before the next request"])
async def test_p35_what_hooks_did_is_in_the_log_and_a_resume_asks_none_of_them_again(tmp_path: Path, dies: str) -> None:
    begun, asked = asyncio.Event(), Counter[str]()
    given: list[Any] = []

    async def act(arguments: Any, _call: Call[object]) -> str:
        given.append(arguments)
        if dies == "while the call is out" and len(given) == 1:
            begun.set()
            await asyncio.Event().wait()
        return "looked at 4711"

    def counted(phase: str, value: object) -> Callable[[Any], object]:
        def hook(_told: object) -> object:
            asked[phase] += 1
            return value

        return hook

    look = counting("look", Effect.READ, behaviour=act)
    delay = {} if dies == "while the call is out" else {"delay_ms": 3_600_000}
    model = script_file(tmp_path / "m.json", {"text": "a", "calls": [call("look", n=1)]}, {"text": "b", **delay})
    hooks = {"pre_user": "new", "post_assistant": "said", "pre_tool": {"n": 2}, "post_tool": "looked"}
    agent = Agent("a", model=model, tools=[look], **{phase: counted(phase, value) for phase, value in hooks.items()})  # type: ignore[arg-type]  # hooks
    medium_ground = ground()
    async with Runtime(agents=[agent], ground=medium_ground, drain_seconds=0) as runtime:
        run = await runtime.session("s", agent=agent).send("go")
        if dies == "while the call is out":
            await begun.wait()
        else:
            async for event in run.events(after=0):
                if event["type"] == "step_started" and event["record"]["step_id"] == 2:
                    break
    before = Counter(asked)
    assert before["pre_user"] == before["post_assistant"] == before["pre_tool"] == 1
    script_file(tmp_path / "m.json", {"text": "a", "calls": [call("look", n=1)]}, {"text": "b"})
    async with Runtime(agents=[agent], ground=medium_ground, recover="manual") as runtime:
        resumed = await runtime.resume("s")
        assert resumed is not None
        result = await resumed.result()
    assert isinstance(result, Completed)
    assert result.output == "said"
    assert all(arguments == {"n": 2} for arguments in given)
    again = asked - before
    assert again == Counter(post_assistant=1, **({"post_tool": 1} if dies == "while the call is out" else {})), (
        "of the new answer"
    )
    assert results(medium_ground) == ["looked"]


@pytest.mark.parametrize("phase", PHASES)
async def test_a_hook_that_is_no_function_is_refused_by_name(tmp_path: Path, phase: str) -> None:
    agent = shop(tmp_path, paying(), **{phase: ["not a function"]})
    with pytest.raises(BadAgent, match=f"a {phase} hook is a function, not a str"):
        await carry(agent, ground())


def test_an_asker_has_one_method_for_each_phase() -> None:
    assert {name for name in vars(Asker) if not name.startswith("_")} >= {"message", "answer", "result"}
