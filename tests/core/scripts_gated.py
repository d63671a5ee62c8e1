"""A legal history with every feature that the other scripts do not show: tags, scope, media, frozen policies, times."""

from typing import Any

from msgspec.structs import replace

from semel.core.decide import send
from semel.core.effects import Decision
from semel.core.records import (
    Entry,
    Failure,
    Manifest,
    ModelAttemptFinished,
    ModelStepFinished,
    ProviderAnswer,
    Record,
    RunFinished,
    RunPaused,
    RunRefrozen,
    RunStarted,
    SchemaPin,
    Scope,
    ToolDispatchIntent,
    ToolNoDispatch,
    ToolOutput,
    ToolResult,
)
from semel.core.values import AssistantMessage, Media, Opaque, Text
from tests.core.cast import driver
from tests.core.driver import Driver
from tests.core.machine import BUNDLE, call, good

PICTURE = Media(media_type="image/png", sha256="0123456789abcdef" * 4, size_bytes=3)


class Tagger(Driver):
    """Writes what the core decides, with what a host adds to it: the next tag for each part, times, where a call goes."""

    def _commit(self, decision: Decision) -> None:
        number = self.state.next_tag
        records: list[Record] = []
        for record in decision.records:
            changes = _added(record, number)
            records.append(replace(record, **changes))
            tags = changes.get("tags", (changes["tag"],) if "tag" in changes else ())
            number += sum(len(tag) if isinstance(tag, tuple) else 1 for tag in tags)
        super()._commit(replace(decision, records=tuple(records)))


def _added(record: Record, number: int) -> dict[str, Any]:
    match record:
        case RunStarted():
            answer = ProviderAnswer(provider="m", tools=[{"name": "read"}], text="be quick")
            manifest = Manifest(
                plan="p", plan_identity="i", answers=(answer,), tools=[], system_text="be good", digests={"m": "d"}, versions={}
            )
            scope = Scope(owner="o", ref="r", scope_epoch=2)
            return {"tags": ((number,),) * len(record.input), "scope": scope, "manifest": manifest}
        case ModelStepFinished(assistant_message=Entry(content=AssistantMessage(blocks=blocks))):
            return {"tags": tuple(range(number, number + len(blocks)))}
        case ModelAttemptFinished():
            return {"continuation": {"previous": "x"}}
        case ToolDispatchIntent():
            return {"module_id": "m", "schema_pin": SchemaPin(schema_digest="d", semantics="v1"), "dispatched_at_ms": 1500}
        case ToolNoDispatch():
            return {"tag": number, "dispatched_at_ms": 1500}
        case ToolResult():
            return {"tag": number, "finished_at_ms": 1600, "terminate": record.ordinal == 0}
        case RunFinished():
            more = {"retry": "1 s"}
            return {"error": Failure(kind="model", code="quota", message="gone", provider_details=more)} if record.error else {}
        case _:
            return {}


def opaque_voided() -> Driver:
    """Another start voids what a model that binds its state to it had thought; then the provider refuses what came behind."""
    d = driver()
    bound = replace(BUNDLE, family="anthropic_messages")

    def send_as(key: str, instructions: str) -> None:
        command = d.command(key, "go on")
        config = replace(command.config, bundle=bound)
        d._do(send(d.state, replace(command, config=config, instructions=instructions)))

    thought = Opaque(format="anthropic.thinking", data='{"type":"thinking","thinking":"hm","signature":"x"}')
    send_as("k1", "be good")
    d.answer([thought, Text(text="Good."), *call("read")])
    d.back()
    d.answer([thought, Text(text="Done.")])
    send_as("k2", "be quick")
    d.answer([thought, *call("put")])
    d.back()
    d.fail(failure="opaque_state_rejected", retryable=False)
    d.die()
    d.resume()
    d.answer([thought, Text(text="Quick.")])
    send_as("k3", "be quick")
    d.fail(failure="opaque_state_rejected", retryable=False)
    d.fail(failure="opaque_state_rejected", retryable=False)
    return d


def gated() -> Driver:
    d = Tagger(tools=driver().tools)
    command = d.command("k1", "look")
    config = replace(command.config, render_tags=True, provider_text_state=True, reasoning_echo="open_router_details")
    started = send(d.state, replace(command, config=config))
    run_id = next(record.run_id for record in started.records if isinstance(record, RunStarted))
    d._do(started)
    refrozen = Entry(entry_id="refrozen", content=replace(config, chatgpt_wire={"originator": "semel"}))
    d.die()
    waits = RunPaused(run_id=run_id, reason="auth_required", ts_ms=1)
    again = RunRefrozen(run_id=run_id, config="refrozen", entries=(refrozen,))
    d._do(Decision(records=(waits, again)))
    d.resume()
    d.answer(
        [
            Opaque(format="reasoning_details", data="[]"),
            Text(text="§9§ I look."),
            Opaque(format="gemini.text", data='{"thoughtSignature":"x"}'),
            *call("read", "pay"),
        ]
    )
    shown = ToolOutput(text="", parts=(Text(text="a picture"), PICTURE))
    d.back({0: replace(good(), parts=shown.parts, text=shown.text), 1: good()})
    d.answer([Text(text="So it is."), *call("ghost")])
    d._do(Decision(records=(RunPaused(run_id=run_id, reason="restart"),)))
    d.die()
    d.resume()
    d.fail(retryable=False)
    return d
