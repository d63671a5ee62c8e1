"""Does a model work from here? One real request with a tool, and what came of it, in lines for a person (`semel models check`).

Nothing is recorded and nothing is retried: whoever asks wants to see the first answer, and what to do about it.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from semel.adapters.models.catalog import ModelOptions, build_model
from semel.adapters.models.http_model import HttpModel
from semel.core.values import Effect, Frozen, Opaque, Prompt, ToolCall, ToolSpec, Usage, UserMessage, printable
from semel.ports.model import Answer, Delta, FailureClass, ModelFailed, ModelPort
from semel.ports.world import Clock

_TOOL = ToolSpec(
    name="report",
    description="Report that the tool works.",
    parameters='{"type":"object","properties":{"word":{"type":"string"}},"required":["word"],"additionalProperties":false}',
    effect=Effect.READ,
)
_PROMPT = Prompt(
    instructions="This is a test of the connection. Be very brief.",
    tools=(_TOOL,),
    messages=(UserMessage(text="Say hello in one word, and call the tool report with that word."),),
)
_TOKENS_MOST = 1024
_REMEDIES = {
    FailureClass.AUTH: "give the right key",
    FailureClass.PERMISSION: "ask for access to this model with this key, or name another",
    FailureClass.QUOTA_EXHAUSTED: "add credit or raise the limit at the provider, or use another key",
    FailureClass.RATE_LIMIT: "wait, then try again",
    FailureClass.OVERLOADED: "try again later",
    FailureClass.SERVER_ERROR: "try again later",
    FailureClass.TIMEOUT: "try again, or raise the model option limits",
    FailureClass.INTERRUPTED: "try again; if it stays, something on the way cuts streams",
    FailureClass.INVALID_REQUEST: "check the model's name, its URL and its options",
    FailureClass.MALFORMED_OUTPUT: "check the address: this may be no API of that family",
}


class Finding(Frozen, frozen=True, kw_only=True):
    """One thing that was looked at: whether it works, and what was seen. None is "not to be told from one answer"."""

    what: str
    works: bool | None
    seen: str


async def check_model(
    spec: str, *, clock: Clock, environ: Mapping[str, str], options: ModelOptions | None = None
) -> tuple[Finding, ...]:
    """Ask the model that `spec` names once, and its server for a count of tokens. Raises UnknownModel or BadSettings."""
    options = options or ModelOptions()
    if options.max_output_tokens is None:
        options = replace(options, max_output_tokens=_TOKENS_MOST)
    model = build_model(spec, clock=clock, environ=environ, options=options)
    try:
        return await _findings(model)
    finally:
        await model.close()


async def _findings(model: ModelPort) -> tuple[Finding, ...]:
    pieces, answer = 0, None
    try:
        async for item in model.stream(model.render(_PROMPT)):
            if isinstance(item, Delta):
                pieces += 1
            else:
                answer = item
    except ModelFailed as failure:
        return (Finding(what="answers", works=False, seen=_told(failure)),)
    assert answer is not None
    return (*_seen(answer, pieces), *await _counted(model))


def _seen(answer: Answer, pieces: int) -> list[Finding]:
    called = [block.name for block in answer.blocks if isinstance(block, ToolCall)]
    state = sorted({block.format for block in answer.blocks if isinstance(block, Opaque)})
    usage = answer.usage
    return [
        Finding(what="answers", works=True, seen=f"stopped with {printable(answer.raw_stop or str(answer.stop), limit=60)}"),
        Finding(what="streams", works=pieces > 1 or None, seen=f"{pieces} piece{'' if pieces == 1 else 's'} of text"),
        Finding(what="calls tools", works=_TOOL.name in called or None, seen=", ".join(called) or "it called none"),
        Finding(what="reports usage", works=usage != Usage(), seen=_usage(usage)),
        Finding(what="keeps state", works=bool(state) or None, seen=", ".join(state) or "none came with this answer"),
    ]


def _usage(usage: Usage) -> str:
    counts = {"in": usage.input, "out": usage.output, "read from cache": usage.cache_read, "thought": usage.reasoning}
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count is not None)
    return f"{told or 'nothing'}{f'; {usage.cost}' if usage.cost is not None else ''}"


async def _counted(model: ModelPort) -> list[Finding]:
    if not isinstance(model, HttpModel) or not model.counts:
        return [Finding(what="counts tokens", works=None, seen="its family has no path for that")]
    try:
        return [Finding(what="counts tokens", works=True, seen=f"{await model.count_tokens(_PROMPT)} for this request")]
    except ModelFailed as failure:
        return [Finding(what="counts tokens", works=False, seen=str(failure))]


def _told(failure: ModelFailed) -> str:
    """A failure and what to do about it, in one line. What was found before a server answered says itself what to do."""
    said = str(failure).rstrip(".")
    if failure.exchange.http_status is None and failure.failure in (FailureClass.AUTH, FailureClass.UNREACHABLE):
        return said
    return f"{said}; {_REMEDIES.get(failure.failure, 'see the message')}"
