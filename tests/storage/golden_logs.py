"""The logs in tests/golden/v1, made again from records: `python -m tests.storage.golden_logs` writes them.

They were written once and are never written again with other bytes: each is what a build of that time left behind (W40).
"""

from collections.abc import Sequence
from pathlib import Path

from semel.core import codec
from semel.core.features import OPENROUTER_FORMAT
from semel.core.frame import encode_frames
from semel.core.header import Point, encode_lineage
from semel.core.keys import answer_entry_of, batch_id_of, call_key_of, input_entry_of, run_id_of
from semel.core.limits import Limits
from semel.core.outcomes import Outcome
from semel.core.records import (
    AgentRef,
    Config,
    Entry,
    Failure,
    IndeterminateResolved,
    Instructions,
    ModelAttemptFinished,
    ModelRetry,
    ModelStepFinished,
    PlannedCall,
    Record,
    Refused,
    Replayed,
    ResumeStarted,
    RunFinished,
    RunStarted,
    StepStarted,
    ToolBatchFinished,
    ToolBatchStarted,
    ToolCallReturned,
    ToolDispatchIntent,
    ToolNoDispatch,
    ToolOutput,
    ToolProcess,
    ToolRerun,
    ToolResult,
    ToolSet,
    TurnFinished,
)
from semel.core.values import (
    AssistantMessage,
    Bundle,
    Effect,
    Money,
    Opaque,
    Stop,
    Text,
    ToolCall,
    ToolSpec,
    Usage,
    UserMessage,
    digest_text,
)
from semel.ports.log import Payload

HOME = Path(__file__).parents[1] / "golden" / "v1"
LINEAGE = "000102030405060708090a0b0c0d0e0f"
SESSION = "golden"
AT_MS = 1767225600000
RUN = run_id_of(LINEAGE, "k")
BATCH = batch_id_of(LINEAGE, RUN, 1)
PAY, LOOK, BAD = (call_key_of(LINEAGE, RUN, 1, at) for at in range(3))


def _start() -> list[Record]:
    config = Config(
        bundle=Bundle(family="scripted", model="m", endpoint="", renderer=1), limits=Limits(cost=Money(micros=5, currency="USD"))
    )
    specs = tuple(
        ToolSpec(name=name, description=name, parameters="{}", effect=effect)
        for name, effect in (("pay", Effect.ONCE), ("look", Effect.READ))
    )
    named = {"c": config, "i": Instructions(text="Be brief: ünï, 日本"), "t": ToolSet(tools=specs)}
    entries = [Entry(entry_id=name, content=content) for name, content in named.items()]
    entries.append(Entry(entry_id=input_entry_of(LINEAGE, "k"), content=UserMessage(text="pay 17")))
    started = RunStarted(
        run_id=RUN,
        session=SESSION,
        key="k",
        agent=AgentRef(name="a", source="/agent.toml", digest="d"),
        config="c",
        instructions="i",
        tools="t",
        input=(entries[-1].entry_id,),
        entries=tuple(entries),
        context={"order": 17},
    )
    answer = answer_entry_of(LINEAGE, RUN, 1)
    return [started, StepStarted(run_id=RUN, step_id=1, attempt=1, result_entry=answer, drained=())]


def _attempt() -> ModelAttemptFinished:
    return ModelAttemptFinished(
        step_id=1,
        attempt=1,
        http_attempt=0,
        request_body_len=10,
        request_body_sha256="0" * 64,
        response_body_len=20,
        outcome="completed",
        ts_ms=AT_MS,
        http_status=200,
    )


def _answer(*blocks: object) -> ModelStepFinished:
    message = AssistantMessage(blocks=tuple(blocks))  # type: ignore[arg-type]  # blocks of any kind
    entry = Entry(entry_id=answer_entry_of(LINEAGE, RUN, 1), content=message)
    stop = Stop.TOOL_USE if message.calls else Stop.END_TURN
    usage = Usage(input=10, output=5, cost=Money(micros=7, currency="USD"))
    return ModelStepFinished(run_id=RUN, step_id=1, assistant_message=entry, stop=stop, usage=usage)


def _batch() -> list[Record]:
    names, keys = ("pay", "look", "nothing"), (PAY, LOOK, BAD)
    calls = [ToolCall(id=f"c{at}", name=name, arguments='{"n": 1}') for at, name in enumerate(names)]
    digest = digest_text('{"n": 1}')
    planned = [
        PlannedCall(ordinal=at, tool_call_id=f"c{at}", call_key=keys[at], tool=name, args_digest=digest)
        for at, name in enumerate(names[:2])
    ]
    refused = Refused(reason="unknown_tool", message="Not run.")
    planned.append(PlannedCall(ordinal=2, tool_call_id="c2", call_key=BAD, tool="nothing", args_digest=digest, refused=refused))
    return [
        _attempt(),
        _answer(Text(text="I pay."), *calls),
        ToolBatchStarted(run_id=RUN, batch_id=BATCH, step_id=1, planned_calls=tuple(planned)),
        *(ToolDispatchIntent(batch_id=BATCH, ordinal=at, tool_call_id=f"c{at}", args_digest=digest) for at in range(2)),
        ToolProcess(batch_id=BATCH, ordinal=0, pid=7, started=8, boot="b"),
        ToolRerun(call_key=LOOK, n=1),
    ]


def _results(outcome: Outcome, *, early: bool = False, terminate: bool = False) -> list[Record]:
    records: list[Record] = []
    output = ToolOutput(text="seen")
    if early:
        records.append(
            ToolCallReturned(
                step_id=1, batch_id=BATCH, ordinal=1, call_key=LOOK, output=output, is_error=False, outcome=Outcome.COMPLETED
            )
        )
    pay = ToolOutput(text="paid" if outcome is Outcome.COMPLETED else "Outcome unknown.")
    records += [
        ToolResult(
            batch_id=BATCH,
            ordinal=0,
            tool_call_id="c0",
            is_error=outcome is Outcome.UNKNOWN,
            outcome=outcome,
            output=pay,
            terminate=terminate,
        ),
        ToolResult(
            batch_id=BATCH,
            ordinal=1,
            tool_call_id="c1",
            is_error=False,
            outcome=Outcome.COMPLETED,
            output=None if early else output,
        ),
        ToolNoDispatch(batch_id=BATCH, ordinal=2, tool_call_id="c2", reason="unknown_tool", message="Not run."),
        ToolBatchFinished(batch_id=BATCH),
        TurnFinished(run_id=RUN, step_id=1),
    ]
    return records


def _end(reason: str, error: Failure | None = None) -> RunFinished:
    return RunFinished(run_id=RUN, reason=reason, usage=Usage(input=10, output=5), error=error)


def _resumed() -> ResumeStarted:
    replayed = Replayed(messages=1, model_steps=0, tool_results=0)
    return ResumeStarted(episode=RUN, resumed_from_seq=2, replayed=replayed, redone=("step 1",), indeterminate=())


def logs() -> dict[str, list[list[Record]]]:
    """The writes of each log, by name. `ungated` holds every record that needs no feature."""
    start, again = (
        _start(),
        StepStarted(run_id=RUN, step_id=1, attempt=2, result_entry=answer_entry_of(LINEAGE, RUN, 1), drained=()),
    )
    retry = ModelRetry(run_id=RUN, step_id=1, used=1, not_before_ms=AT_MS)
    thought = Opaque(format=OPENROUTER_FORMAT, data='[{"type":"reasoning.text","text":"hm"}]')
    failed = Failure(kind="limit", code="max_steps", message="1 step")
    done = [TurnFinished(run_id=RUN, step_id=1), _end("completed")]
    verdict = IndeterminateResolved(call_key=PAY, verdict="happened", by="operator", output="paid", note="seen")
    return {
        "ungated": [
            start,
            [retry],
            [_resumed(), again],
            _batch(),
            [*_results(Outcome.COMPLETED), _end("error", failed)],
        ],
        "plain": [start, [_attempt(), _answer(Text(text="hello")), *done]],
        "early_return": [start, _batch(), [*_results(Outcome.COMPLETED, early=True), _end("error", failed)]],
        "terminate": [start, _batch(), [*_results(Outcome.COMPLETED, terminate=True), _end("error", failed)]],
        "resolution": [start, _batch(), _results(Outcome.UNKNOWN), [_end("interrupted")], [verdict]],
        "openrouter_reasoning": [start, [_answer(thought, Text(text="hello")), *done]],
    }


def encoded(writes: Sequence[Sequence[Record]]) -> bytes:
    """The bytes of a log."""
    point, data = Point(), b""
    for number, write in enumerate(writes):
        payloads = [Payload(json=json, requires=requires) for json, requires in map(codec.encode, write)]
        if number == 0:
            payloads.insert(0, Payload(json=encode_lineage(LINEAGE, SESSION), lineage=True))
        encoding = encode_frames(payloads, point, at_ms=AT_MS + number, fence=1, synced=max(point.seq - 1, 0))
        point, data = encoding.point, data + encoding.data
    return data


if __name__ == "__main__":
    for name, writes in logs().items():
        (HOME / f"{name}.log").write_bytes(encoded(writes))
