"""Records with the features that their content needs, one row for each condition and for what comes near it (M2-M19, C52)."""

from typing import Any

from msgspec.structs import replace

from semel.core.limits import Limits
from semel.core.records import (
    AgentRef,
    ApprovalRecorded,
    CompactionMessage,
    CompactionViewApplied,
    Config,
    Entry,
    Failure,
    FollowUpQueued,
    HistorySupplied,
    HookNote,
    LateResult,
    ModelAttemptFinished,
    ModelStepFinished,
    OpaqueStateVoided,
    Queued,
    QueuedRequest,
    Retracted,
    RunFinished,
    RunPaused,
    RunRefrozen,
    RunStarted,
    SendDelivered,
    SendFailure,
    Steered,
    ToolCallDeferred,
    ToolCallReturned,
    ToolDispatchIntent,
    ToolNoDispatch,
    ToolOutput,
    ToolResult,
)
from semel.core.values import AssistantMessage, Bundle, Media, Opaque, Text, Usage, UserMessage
from tests.core.samples import sample

PICTURE = Media(media_type="image/png", sha256="a" * 64, size_bytes=3)
SEEN = UserMessage(text="look", parts=(PICTURE,))
SAID = AssistantMessage(blocks=(Text(text="so"),))
DRAWN = AssistantMessage(blocks=(Text(text="so"),), parts=(PICTURE,))
SIGNED = AssistantMessage(blocks=(Opaque(format="gemini.part", data='{"text":"","thoughtSignature":"s"}'),))
REASONED = AssistantMessage(blocks=(Opaque(format="reasoning_details", data="[]"), Text(text="so")))
OTHER_STATE = AssistantMessage(blocks=(Opaque(format="reasoning_content", data='"hm"'), Text(text="so")))
PARTS = ToolOutput(text="", parts=(Text(text="the tool failed"),))
PLAIN = ToolOutput(text='{"type":"media","media_type":"image/png"}')
LOOKS_LIKE_MEDIA = '{"media":{"media_type":"image/png","sha256":"a"}}'
QUOTA = Failure(kind="model", code="quota", message="gone", provider_details={"quota": "per day"})
NO_DETAILS = Failure(kind="model", code="quota", message="gone")


def entry(content: Any) -> tuple[Entry, ...]:
    return (Entry(entry_id="e", content=content),)


def config(**fields: Any) -> tuple[Entry, ...]:
    bundle = Bundle(family="f", model="m", endpoint="", renderer=1)
    return entry(Config(bundle=bundle, limits=Limits(), **fields))


def note(phase: Any, **subject: Any) -> tuple[HookNote, ...]:
    return (HookNote(phase=phase, hook="h", verdict="ok", **subject),)


def bare(kind: Any, **fields: Any) -> Any:
    return replace(sample(kind, full=False), **fields)


MEDIA, TEXT_STATE, OPENROUTER, TAGS = "media-content/v1", "provider-text-state/v1", "openrouter-reasoning/v1", "runner-tags/v1"
TIMES, DETAILS, CHATGPT = "tool-times/v1", "google-rpc-error-details/v1", "chatgpt-codex-wire/v1"
STEER, FOLLOW, HISTORY, EARLY = "steer-queue/v1", "follow-up-queue/v1", "supplied-history/v1", "early-return/v1"
COMPACTION, VIEW, REFREEZE = "compaction/v1", "compaction-view/v1", "run-refreeze/v1"
QUEUE_REQUEST = QueuedRequest(input=entry(SEEN), agent=AgentRef(name="a"))

CARRIERS: list[tuple[Any, set[str]]] = [
    # media: the carrier table, by what a record holds and by what a hook was given in its phase
    (bare(RunStarted, entries=entry(SEEN)), {MEDIA}),
    (bare(RunStarted, hooks=note("pre_user", messages=(SEEN,))), {MEDIA}),
    (bare(RunStarted, hooks=note("pre_tool", arguments=LOOKS_LIKE_MEDIA)), set()),
    (bare(Steered, input=entry(SEEN)), {STEER, MEDIA}),
    (bare(Steered, input=entry(UserMessage(text="plain"))), {STEER}),
    (bare(Steered, hooks=note("pre_user", messages=(SEEN,))), {STEER, MEDIA}),
    (bare(FollowUpQueued, input=entry(SEEN)), {FOLLOW, MEDIA}),
    (bare(Queued, request=QUEUE_REQUEST), {MEDIA}),
    (bare(Queued, delivery="interrupt"), set()),
    (bare(Queued, hooks=note("pre_user", messages=(SEEN,))), {MEDIA}),
    (bare(SendDelivered, entries=entry(SEEN)), {STEER, MEDIA}),
    (bare(SendDelivered, delivery="follow_up"), {FOLLOW}),
    (bare(ModelStepFinished, assistant_message=entry(DRAWN)[0]), {MEDIA}),
    (bare(ModelStepFinished, assistant_message=entry(SAID)[0]), set()),
    (bare(ModelStepFinished, hooks=note("post_assistant", answer=DRAWN)), {MEDIA}),
    (bare(ToolResult, output=PARTS), {MEDIA}),
    (bare(ToolResult, output=PLAIN), set()),
    (bare(ToolResult, hooks=note("post_tool", output=PARTS)), {MEDIA}),
    (bare(ToolResult, hooks=note("pre_tool", arguments=LOOKS_LIKE_MEDIA, output=PARTS)), set()),
    (bare(ToolDispatchIntent, hooks=note("pre_tool", arguments=LOOKS_LIKE_MEDIA, messages=(SEEN,))), set()),
    (bare(ToolNoDispatch, hooks=note("pre_tool", arguments=LOOKS_LIKE_MEDIA)), set()),
    (bare(ToolCallReturned, output=PARTS), {EARLY, MEDIA}),
    (bare(ToolCallDeferred, output=PARTS), {MEDIA}),
    (bare(LateResult, output=PARTS), {MEDIA}),
    (bare(ApprovalRecorded, output=PARTS), {MEDIA}),
    (bare(ApprovalRecorded, output=PLAIN), set()),
    (bare(CompactionMessage, replacement=entry(SEEN)), {COMPACTION, MEDIA}),
    (bare(CompactionViewApplied, replacement=entry(SEEN)), {VIEW, MEDIA}),
    (bare(HistorySupplied, entries=entry(DRAWN)), {HISTORY, MEDIA}),
    # opaque state and frozen policies
    (bare(ModelStepFinished, assistant_message=entry(SIGNED)[0]), {TEXT_STATE}),
    (bare(ModelStepFinished, assistant_message=entry(REASONED)[0]), {OPENROUTER}),
    (bare(ModelStepFinished, assistant_message=entry(OTHER_STATE)[0]), set()),
    (bare(HistorySupplied, entries=entry(REASONED)), {HISTORY, OPENROUTER}),
    (bare(CompactionViewApplied, replacement=entry(SIGNED)), {VIEW, TEXT_STATE}),
    (bare(RunStarted, entries=config()), set()),
    (bare(RunStarted, entries=config(provider_text_state=True)), {TEXT_STATE}),
    (bare(RunStarted, entries=config(reasoning_echo="open_router_details")), {OPENROUTER}),
    (bare(RunStarted, entries=config(reasoning_echo="scalar")), set()),
    (bare(RunStarted, entries=config(render_tags=True)), {TAGS}),
    (bare(RunStarted, entries=config(chatgpt_wire={"originator": "x"})), {CHATGPT}),
    (bare(RunRefrozen, entries=config(chatgpt_wire={"originator": "x"})), {REFREEZE, CHATGPT}),
    (bare(RunRefrozen, entries=config(reasoning_echo="open_router_details")), {REFREEZE, OPENROUTER}),
    (bare(ModelAttemptFinished, continuation={"id": "x"}), {CHATGPT}),
    (bare(ModelAttemptFinished, http_status=200), set()),
    # tags, times, details
    (bare(RunStarted, tags=((1,),)), {TAGS}),
    (bare(ToolResult, tag=4), {TAGS}),
    (bare(ToolResult, finished_at_ms=0), {TIMES}),
    (bare(ToolNoDispatch, dispatched_at_ms=5), {TIMES}),
    (bare(ToolCallDeferred, deferred_at_ms=5), {TIMES}),
    (bare(ApprovalRecorded, output=PLAIN, closed_at_ms=5, tag=1), {TIMES, TAGS}),
    (bare(RunFinished, error=QUOTA), {DETAILS}),
    (bare(RunFinished, error=NO_DETAILS, usage=Usage()), set()),
    (bare(RunPaused, error=QUOTA), {DETAILS}),
    (bare(Retracted, failure=SendFailure(error=QUOTA)), {DETAILS}),
    (bare(Retracted, failure=SendFailure(error=NO_DETAILS)), set()),
    # several at once stand in one frame, sorted
    (bare(ToolResult, terminate=True, tag=1, finished_at_ms=1, output=PARTS), {"terminate/v1", TAGS, TIMES, MEDIA}),
    (bare(RunPaused, reason="restart"), {"restart-pause/v1"}),
    (bare(OpaqueStateVoided, reason="rejected"), {"opaque-state-void/v1"}),
    (bare(RunPaused, reason="tool_held"), {"provider-held/v1"}),
    (bare(RunPaused, reason="auth_required"), set()),
]
