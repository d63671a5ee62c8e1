"""Feature names, and which record content needs which: the one table (W14, W37, W40).

A record that needs a feature is written in a ver 3 frame that names it, after the floor of the state root holds the name; a
build without the name refuses the frame before it decodes the content. Everything else keeps ver 1 and its bytes.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from semel.core.records import (
    ApprovalRecorded,
    BudgetFired,
    CompactionAnswer,
    CompactionMessage,
    CompactionNotice,
    CompactionRequest,
    CompactionViewApplied,
    CompactionWait,
    Config,
    Content,
    ContextCeilingDecided,
    ContextCeilingWait,
    FollowUpQueued,
    HistorySupplied,
    HookNote,
    IndeterminateResolved,
    LateResult,
    ModelAttemptFinished,
    ModelStepFinished,
    OpaqueStateVoided,
    Queued,
    Record,
    Retracted,
    RunCancelRequested,
    RunFinished,
    RunPaused,
    RunRefrozen,
    RunStarted,
    RunStopRequested,
    SendDelivered,
    Steered,
    ToolBatchStarted,
    ToolCallDeferred,
    ToolCallProviderHeld,
    ToolCallReturned,
    ToolDispatchIntent,
    ToolNoDispatch,
    ToolResult,
)
from semel.core.values import STATE_OF_TEXT, AssistantMessage, Opaque

EARLY_RETURN = "early-return/v1"
MEDIA_CONTENT = "media-content/v1"
TERMINATE = "terminate/v1"
OPENROUTER_FORMAT = "reasoning_details"
TEXT_STATE_FORMATS = STATE_OF_TEXT | {"gemini.part"}  # the last is a whole part, such as a signature with an empty text
OPENROUTER_ECHO = "open_router_details"

Test = Callable[[Any], bool]


class Gate(NamedTuple):
    """One line of the table: these records need the feature where `test` says so; `when` says it in words."""

    feature: str
    records: tuple[type, ...]
    when: str
    test: Test


def _always(_record: object) -> bool:
    return True


def contents(record: Any) -> Iterator[Content]:
    """Every piece of content that a record carries."""
    if isinstance(record, ModelStepFinished):
        yield record.assistant_message.content
        for note in record.hooks:
            yield from _subjects(note)
        return
    for entry in (*getattr(record, "entries", ()), *getattr(record, "replacement", ())):
        yield entry.content
    request = getattr(record, "request", None)
    for entry in getattr(record, "input", ()) if request is None else request.input:
        if not isinstance(entry, str):
            yield entry.content
    output = getattr(record, "output", None)
    if output is not None and not isinstance(output, str):
        yield output
    for note in getattr(record, "hooks", ()):
        yield from _subjects(note)


def _subjects(note: HookNote) -> Iterator[Content]:
    """What a hook was given, by its phase; the arguments before a tool are opaque and never content (M13, M14)."""
    match note.phase:
        case "pre_user":
            yield from note.messages
        case "post_assistant":
            yield from () if note.answer is None else (note.answer,)
        case "post_tool":
            yield from () if note.output is None else (note.output,)
        case "pre_tool":
            return


def _opaque(record: Any) -> list[str]:
    """The formats of the provider state that a record carries."""
    answers = [content for content in contents(record) if isinstance(content, AssistantMessage)]
    return [block.format for answer in answers for block in answer.blocks if isinstance(block, Opaque)]


def _media(record: Any) -> bool:
    """Any ordered parts, whatever is in them (M5)."""
    if isinstance(record, _OUTPUTS) and not getattr(record, "hooks", ()):  # as nearly every result is: its output is all it has
        return bool(getattr(record.output, "parts", ()))
    for content in contents(record):  # noqa: SIM110  a generator in a generator costs every record of every run
        if getattr(content, "parts", ()):
            return True
    return False


def _text_state(record: Any) -> bool:
    return not TEXT_STATE_FORMATS.isdisjoint(_opaque(record)) or _frozen(record, "provider_text_state")


def _openrouter(record: Any) -> bool:
    return OPENROUTER_FORMAT in _opaque(record) or _frozen(record, "reasoning_echo", OPENROUTER_ECHO)


def _frozen(record: Any, field: str, value: object = None) -> bool:
    """Whether a config that this record carries has the field set, or set to `value`."""
    if isinstance(record, ModelStepFinished):
        return False  # it carries what the model said, and no config
    found = [getattr(content, field) for content in contents(record) if isinstance(content, Config)]
    return any(item == value if value is not None else item not in (None, False) for item in found)


def _set(field: str, *others: str) -> Test:
    if others:
        one, other = _set(field), _set(*others)
        return lambda record: one(record) or other(record)
    read = attrgetter(field)
    return lambda record: (value := read(record)) is not None and value != ()


def _details(record: Any) -> bool:
    cause = record.failure if isinstance(record, Retracted) else record
    return cause is not None and cause.error is not None and cause.error.provider_details is not None


_CONTENT = (
    *(RunStarted, Steered, FollowUpQueued, Queued, SendDelivered, ModelStepFinished, HistorySupplied),
    *(CompactionMessage, CompactionViewApplied),
)
_OUTPUTS = (ToolResult, ToolCallReturned, ToolCallDeferred, LateResult, ApprovalRecorded)
_TIMED = ((ToolDispatchIntent, ToolNoDispatch), (ToolResult,), (ToolCallDeferred,), (ApprovalRecorded,))
_TIMES = ("dispatched_at_ms", "finished_at_ms", "deferred_at_ms", "closed_at_ms")

GATES = (
    Gate("scope/v1", (RunStarted,), "it has a `scope`", _set("scope")),
    Gate("plan-manifest/v1", (RunStarted,), "it has a `manifest`", _set("manifest")),
    Gate("run-refreeze/v1", (RunRefrozen,), "always", _always),
    Gate("opaque-state-void/v1", (OpaqueStateVoided,), "always", _always),
    Gate("dispatch-module/v1", (ToolDispatchIntent,), "it has `module_id` or `schema_pin`", _set("module_id", "schema_pin")),
    Gate("steer-queue/v1", (Steered,), "always", _always),
    Gate("steer-queue/v1", (SendDelivered,), "`delivery` is `steer`", lambda record: record.delivery == "steer"),
    Gate("follow-up-queue/v1", (FollowUpQueued,), "always", _always),
    Gate("follow-up-queue/v1", (SendDelivered,), "`delivery` is `follow_up`", lambda record: record.delivery == "follow_up"),
    Gate("run-cancel-at/v1", (RunCancelRequested,), "always", _always),
    Gate("run-stop/v1", (RunStopRequested,), "always", _always),
    Gate("google-rpc-error-details/v1", (RunFinished, RunPaused, Retracted), "its error has `provider_details`", _details),
    Gate("provider-held/v1", (ToolCallProviderHeld,), "always", _always),
    Gate("provider-held/v1", (RunPaused,), "`reason` is `tool_held`", lambda record: record.reason == "tool_held"),
    Gate("restart-pause/v1", (RunPaused,), "`reason` is `restart`", lambda record: record.reason == "restart"),
    Gate(EARLY_RETURN, (ToolCallReturned,), "always", _always),
    Gate(TERMINATE, (ToolCallReturned, ToolResult), "`terminate` is true", lambda record: bool(record.terminate)),
    Gate("resolution/v1", (IndeterminateResolved,), "always", _always),
    Gate("supplied-history/v1", (HistorySupplied,), "always", _always),
    Gate(MEDIA_CONTENT, (*_CONTENT, *_OUTPUTS), "its content, or what a hook was given, has `parts`", _media),
    Gate(
        "provider-text-state/v1",
        (*_CONTENT, RunRefrozen),
        "it carries provider state of a text, or a config that opts into it",
        _text_state,
    ),
    Gate(
        "openrouter-reasoning/v1",
        (*_CONTENT, RunRefrozen),
        "it carries OpenRouter's opaque reasoning, or a config that echoes it",
        _openrouter,
    ),
    Gate(
        "chatgpt-codex-wire/v1",
        (RunStarted, RunRefrozen),
        "its config has `chatgpt_wire`",
        lambda record: _frozen(record, "chatgpt_wire"),
    ),
    Gate("chatgpt-codex-wire/v1", (ModelAttemptFinished,), "it has a `continuation`", _set("continuation")),
    Gate("compaction/v1", (CompactionMessage, CompactionRequest, CompactionAnswer, CompactionWait), "always", _always),
    Gate("compaction-view/v1", (CompactionViewApplied, CompactionNotice), "always", _always),
    Gate("compaction-view/v1", (CompactionMessage,), "it has a `ceiling`", _set("ceiling")),
    Gate("context-ceiling/v1", (ContextCeilingWait, ContextCeilingDecided), "always", _always),
    Gate(
        "context-ceiling/v1",
        (RunFinished,),
        "`reason` is `context_ceiling`",
        lambda record: record.reason == "context_ceiling",
    ),
    Gate(
        "runner-tags/v1",
        (RunStarted, Steered, FollowUpQueued, SendDelivered, ModelStepFinished, HistorySupplied),
        "it has `tags`",
        _set("tags"),
    ),
    Gate("runner-tags/v1", (ToolResult, ToolNoDispatch, ApprovalRecorded, BudgetFired), "it has a `tag`", _set("tag")),
    Gate("runner-tags/v1", (RunStarted,), "its config has `render_tags`", lambda record: _frozen(record, "render_tags")),
    *(Gate("tool-times/v1", records, f"it has `{field}`", _set(field)) for records, field in zip(_TIMED, _TIMES, strict=True)),
)

KNOWN = frozenset(gate.feature for gate in GATES)
"""What this build reads and writes."""

_GATES_OF = {kind: tuple(gate for gate in GATES if kind in gate.records) for kind in Record.__args__}

_TESTS_OF = {kind: tuple((gate.feature, gate.test) for gate in gates) for kind, gates in _GATES_OF.items()}


def gates_of(kind: type) -> tuple[Gate, ...]:
    """The lines of the table that speak of a record type."""
    return _GATES_OF[kind]


def needed(record: Record) -> tuple[str, ...]:
    """The features that a record needs, sorted; empty for an ungated one."""
    found = [feature for feature, test in _TESTS_OF[type(record)] if test(record)]
    return tuple(sorted(set(found))) if found else ()


def foreseen(record: Record) -> tuple[str, ...]:
    """What later records may need because of this one.

    A call of a batch can come back before the others, and any call can come back with the wish to end the run: the floor holds
    both before anything leaves, so that no known outcome waits in memory for it (LOG-10).
    """
    if not isinstance(record, ToolBatchStarted):
        return ()
    calls = sum([call.refused is None for call in record.planned_calls])
    return (*((EARLY_RETURN,) if calls > 1 else ()), *((TERMINATE,) if calls else ()))
