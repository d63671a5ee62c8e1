"""Facts as short lines for people: times, usage, and one line for each record."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from semel.core.values import Usage, printable

_LINE_CHARS = 160


def moment(at_ms: int) -> str:
    """A time in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def duration(ms: int) -> str:
    """How long something took, in its two largest units."""
    seconds = ms // 1000
    if seconds < 60:
        return f"{ms / 1000:.1f} s" if ms < 10_000 else f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def usage_text(usage: Usage) -> str:
    """Tokens and cost, as far as they were reported."""
    if usage == Usage():
        return "no usage reported"
    return f"{usage.total:,} tokens" + (f", {usage.cost}" if usage.cost is not None else "")


def cached_text(usage: Usage | None) -> str:
    """What the provider's cache served and took of one step, in brackets; nothing where neither was reported."""
    if usage is None or not (usage.cache_read or usage.cache_write):
        return ""
    told = [f"{usage.cache_read:,} read from cache"] if usage.cache_read else []
    told += [f"{usage.cache_write:,} written to it"] if usage.cache_write else []
    return f" [{', '.join(told)}]"


def record_line(event: dict[str, Any]) -> str:
    """A durable event as one line: its number, time, type, and what matters of it."""
    kind = str(event["type"])
    say = _SAYS.get(kind)
    says = say(event["record"]) if say is not None else ""
    return f"{event['seq']:>5}  {moment(event['at_ms'])}  {kind}  {printable(says, limit=_LINE_CHARS)}".rstrip()


def live_line(event: dict[str, Any]) -> str:
    """A live event as one line, marked as such: no number, since it is not in the log."""
    what = event.get("text", "")
    return f" live  {event['live']}  {printable(what, limit=_LINE_CHARS)}".rstrip()


def _run_started(record: dict[str, Any]) -> str:
    texts = [entry["content"]["text"] for entry in record["entries"] if entry["content"].get("type") == "user"]
    return f"{record['run_id'][:8]} {record['agent']['name']}: {' '.join(texts)}"


def text_of_answer(record: dict[str, Any]) -> str:
    """What the model said in a `model_step_finished`."""
    return "".join(block["text"] for block in _blocks(record) if block.get("type") == "text")


def _blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = record["assistant_message"]["content"]["blocks"]
    return blocks


def _answer(record: dict[str, Any]) -> str:
    said = [block["text"] for block in _blocks(record) if block.get("type") == "text"]
    calls = [f"{block['name']}({block['arguments']})" for block in _blocks(record) if block.get("type") == "tool_call"]
    return " ".join([*said, *calls])


def _batch(record: dict[str, Any]) -> str:
    return ", ".join(f"{call['tool']} {call['call_key'][:8]}" for call in record["planned_calls"])


def _result(record: dict[str, Any]) -> str:
    output = record.get("output") or {}
    return f"call {record['ordinal']} {record['outcome']}: {output.get('text', '')}".rstrip(": ")


def _resumed(record: dict[str, Any]) -> str:
    lost = [f"{key[:8]} is open" for key in record["indeterminate"]]
    return "; ".join([f"from record {record['resumed_from_seq']}", *record["redone"], *lost])


def _messages(entries: list[dict[str, Any]]) -> str:
    return " ".join(entry["content"].get("text", "") for entry in entries)


def _supplied(record: dict[str, Any]) -> str:
    return f"{len(record['entries'])} messages, {record['format']}"


def _view(record: dict[str, Any]) -> str:
    return f"version {record['version']} for messages {record['start']} to {record['end']}: {_messages(record['replacement'])}"


def _approval(record: dict[str, Any]) -> str:
    by = f" by {record['by']}" if record.get("by") else ""
    return f"{record['call_key'][:8]} {record['decision']}{by}"


def _paused(record: dict[str, Any]) -> str:
    error = record.get("error")
    return f"{record['run_id'][:8]} {record['reason']}" + (f": {error['message']}" if error else "")


def _finished(record: dict[str, Any]) -> str:
    error = record.get("error")
    return f"{record['run_id'][:8]} {record['reason']}" + (f": {error['code']}: {error['message']}" if error else "")


_SAYS: dict[str, Callable[[dict[str, Any]], str]] = {
    "run_started": _run_started,
    "step_started": lambda record: f"step {record['step_id']}, attempt {record['attempt']}",
    "model_attempt_finished": lambda record: f"step {record['step_id']}: {record['outcome']}",
    "model_retry": lambda record: (
        f"step {record['step_id']}, redelivery {record['used']} not before {moment(record['not_before_ms'])}"
    ),
    "model_step_finished": _answer,
    "tool_batch_started": _batch,
    "tool_dispatch_intent": lambda record: f"call {record['ordinal']}",
    "tool_process": lambda record: f"call {record['ordinal']} is process {record['pid']}",
    "tool_rerun": lambda record: f"{record['call_key'][:8]} for the {record['n']}. time",
    "tool_call_returned": _result,
    "tool_no_dispatch": lambda record: f"call {record['ordinal']} {record['reason']}: {record['message']}",
    "tool_result": _result,
    "approval_requested": lambda record: f"{record['call_key'][:8]} waits for a person",
    "approval_resolved": _approval,
    "approval_recorded": _approval,
    "tool_call_provider_held": lambda record: f"{record['call_key'][:8]} is held: {record['reason']}",
    "tool_call_deferred": lambda record: f"{record['call_key'][:8]} comes later, as {record['handle']}",
    "late_result": lambda record: f"{record['call_key'][:8]}: {record['output']['text']}",
    "steered": lambda record: _messages(record["input"]),
    "follow_up_queued": lambda record: _messages(record["input"]),
    "queued": lambda record: f"{record['submission_id']}: {_messages(record['request']['input'])}",
    "retracted": lambda record: str(record["submission_id"]),
    "send_delivered": lambda record: f"{record['submission_id']} as a {record['delivery'].replace('_', '-')}",
    "run_cancel_requested": lambda record: f"{record['run_id'][:8]} {record['at'].replace('_', ' ')}",
    "run_stop_requested": lambda record: str(record["run_id"][:8]),
    "run_paused": _paused,
    "run_refrozen": lambda record: str(record["run_id"][:8]),
    "budget_fired": lambda record: f"{record['budget']}: {record['used']} of {record['limit']}",
    "history_supplied": _supplied,
    "compaction_message": _view,
    "compaction_view_applied": _view,
    "turn_finished": lambda record: f"step {record['step_id']}",
    "resume_started": _resumed,
    "run_finished": _finished,
    "indeterminate_resolved": lambda record: f"{record['call_key'][:8]} {record['verdict']} by {record['by']}",
}
