"""Where a message stands in the log, as one number of 64 bits: what the state keeps of it instead of its content (design 3).

From the top: the seq of its record (35 bits), which of the record's entries it is (24 bits), and what the fold must know of a
message without reading it (5 bits). A tool result whose output an earlier record brought counts the records back to that one
instead. `content_of` reads the message again, from nothing but the records.
"""

from collections.abc import Callable, Sequence

from semel.core.records import (
    ApprovalRecorded,
    BudgetFired,
    CompactionMessage,
    CompactionViewApplied,
    Entry,
    FollowUpQueued,
    HistorySupplied,
    ModelStepFinished,
    Queued,
    Record,
    RunRefrozen,
    RunStarted,
    SendDelivered,
    Steered,
    ToolCallDeferred,
    ToolCallReturned,
    ToolNoDispatch,
    ToolOutput,
    ToolResult,
)
from semel.core.sendable import traits
from semel.core.values import AssistantMessage, Message, ToolMessage, UserMessage
from semel.errors import InvariantBroken, need

FindRecord = Callable[[int], Record | None]
"""The record of a seq, from whoever keeps the log; it raises where that cannot be read any more, and never invents one."""

USER, ANSWER, RESULT, NOTHING = 0, 1, 2, 3
KIND, OPAQUE, PORTABLE, OWN = 3, 4, 8, 16
_WITHIN_AT, _SEQ_AT = 5, 29
_WITHIN_MOST = (1 << (_SEQ_AT - _WITHIN_AT)) - 1


def place_of(seq: int, message: Message, within: int = 0) -> int:
    """The place of a message that stands in a record, as its entry `within`."""
    return (seq << _SEQ_AT) | (within << _WITHIN_AT) | kind_of(message)


def kind_of(message: Message) -> int:
    """The bits that say what kind of message this is: `NOTHING` for an answer that no request can show."""
    if not isinstance(message, AssistantMessage):
        return USER if isinstance(message, UserMessage) else RESULT
    says, opaque = traits(message)
    return NOTHING if not says else ANSWER | OPAQUE if opaque else ANSWER


def own_place(at: int, message: Message) -> int:
    """The place of a message that no single record gives, which the state itself keeps as number `at` of its own."""
    return (at << _SEQ_AT) | kind_of(message) | OWN


def place_of_result(seq: int, output_seq: int) -> int:
    """The place of a tool result whose output stands in an earlier record, unless that is 0; 0 if it is out of reach."""
    if not output_seq:
        return (seq << _SEQ_AT) | RESULT
    back = seq - output_seq
    return 0 if back > _WITHIN_MOST else (seq << _SEQ_AT) | (back << _WITHIN_AT) | RESULT


def places_of_results(seq: int, count: int) -> Sequence[int]:
    """The places of so many tool results in a row, from the record `seq` on, that bring their outputs themselves."""
    return range((seq << _SEQ_AT) | RESULT, (seq + count) << _SEQ_AT, 1 << _SEQ_AT)


def seq_of(place: int) -> int:
    """The seq of the record that gives the message, or the number among the state's own."""
    return place >> _SEQ_AT


def records_of(place: int) -> Sequence[int]:
    """The seqs of the records that the message is read from; none for one that the state itself keeps."""
    seq, within = place >> _SEQ_AT, (place >> _WITHIN_AT) & _WITHIN_MOST
    if place & OWN:
        return ()
    return (seq, seq - within) if place & KIND == RESULT else (seq,)


def content_of(place: int, find: FindRecord) -> Message:
    """The message at a place in the log, as it was received."""
    seq, within = place >> _SEQ_AT, (place >> _WITHIN_AT) & _WITHIN_MOST
    record = find(seq)
    match record:
        case ModelStepFinished():
            content = record.assistant_message.content
        case ToolResult():
            output = record.output or _output_of(find(seq - within))
            return ToolMessage(tool_call_id=record.tool_call_id, text=output.text, is_error=record.is_error, parts=output.parts)
        case ToolNoDispatch():
            return ToolMessage(tool_call_id=record.tool_call_id, text=record.message, is_error=True)
        case ApprovalRecorded():
            output = need(record.output, "an approval that closes its call has an output")
            return ToolMessage(tool_call_id=record.tool_call_id, text=output.text, is_error=True)
        case _:
            content = entries_of(record)[within].content
    if isinstance(content, UserMessage | AssistantMessage | ToolMessage):
        return content
    raise InvariantBroken(f"record {seq} holds no message where the transcript has one")


def entries_of(record: Record | None) -> Sequence[Entry]:
    """The entries that a record carries, in their order."""
    match record:
        case RunStarted() | RunRefrozen() | SendDelivered() | HistorySupplied():
            return record.entries
        case Steered() | FollowUpQueued():
            return record.input
        case Queued():
            return record.request.input
        case BudgetFired():
            return (record.notice,) if record.notice is not None else ()
        case CompactionMessage() | CompactionViewApplied():
            return record.replacement
    return ()


def _output_of(record: Record | None) -> ToolOutput:
    if isinstance(record, ToolCallReturned | ToolCallDeferred):
        return record.output
    raise InvariantBroken("a tool result names an earlier record that brought no output")
