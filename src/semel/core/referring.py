"""What a record refers to, looked up in the state before it: the open run, its step, entries, keys and tags.

A reference to what is over, or never was, is a contradiction (K2, K3, K11); so every fold finds what it names through these.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from semel.core.calls import Step
from semel.core.corruption import Reason, contradiction, entry_digest, same_entry
from semel.core.hook_notes import HookNote, original_input
from semel.core.keys import digests_of_delivery
from semel.core.places import KIND, USER, place_of
from semel.core.records import Config, Content, Entry, Instructions, ToolSet
from semel.core.state import Definition, KeyUse, Position, Run, Session
from semel.core.values import JSON, AssistantMessage, Message, ToolMessage, UserMessage, digest_text
from semel.errors import CorruptLog, need

C = TypeVar("C", Config, Instructions, ToolSet)
_DIGEST_BYTES, _TEXT_AT = 16, 24


def open_run(state: Session, logged: Position, run_id: str) -> Run:
    """The open run, if it is the one named; else the log references what is over or never was (K2, K3)."""
    run = state.run
    if run is not None and run.run_id == run_id:
        return run
    if run_id in state.ended:
        raise contradiction(state, logged, Reason.RECORD_AFTER_FINISH, f"run {run_id} is finished")
    raise contradiction(state, logged, Reason.UNKNOWN_OPERATION, f"run {run_id} was never started")


def in_flight(state: Session, logged: Position, run_id: str, step_id: int) -> tuple[Run, Step]:
    """The open run and its step, which has no answer yet."""
    run = open_run(state, logged, run_id)
    step = run.step
    if step is None or step.answer is not None or step.step_id != step_id:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"step {step_id} is not in flight")
    return run, step


def with_step(state: Session, step: Step) -> Session:
    """The state with a newer state of the open step."""
    return replace(state, run=replace(need(state.run, "a step belongs to the open run"), step=step))


def keep_entries(state: Session, logged: Position, entries: Iterable[Entry]) -> Session:
    """The state that knows the entries of this record. An id that is known must name equal content (K15)."""
    table = state.entries
    for within, entry in enumerate(entries):
        content, found = entry.content, comparable(table.get(entry.entry_id))
        if found is None:
            table = table.plus(entry.entry_id, _kept(content, logged.seq, within))
        elif not same_entry(content, found):
            raise contradiction(state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"entry {entry.entry_id} has two contents")
    return replace(state, entries=table)


def comparable(kept: Definition | bytes | None) -> Definition | bytes | None:
    """What `same_entry` compares an entry with, of what the state keeps of it: the content, or its digest."""
    return kept[:_DIGEST_BYTES] if isinstance(kept, bytes) else kept


def _kept(content: Content, seq: int, within: int) -> Definition | bytes:
    """What the state keeps of an entry: of a message, no more than tells whether it is the same, and finds it again."""
    if isinstance(content, UserMessage | AssistantMessage | ToolMessage):
        text = bytes.fromhex(digest_text(content.text)) if isinstance(content, UserMessage) else b""
        return entry_digest(content) + place_of(seq, content, within).to_bytes(8, "big") + text
    return content


def entry_of(state: Session, logged: Position, name: str, kind: type[C]) -> C:
    """The entry of that name, which must be of this kind."""
    content = state.entries.get(name)
    if not isinstance(content, kind):
        raise _named_otherwise(state, logged, name, kind.__name__)
    return content


def _named_otherwise(state: Session, logged: Position, name: str, kind: str) -> CorruptLog:
    return contradiction(state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"entry {name} is not the {kind} that it is named as")


def _no_message(state: Session, logged: Position, name: str) -> CorruptLog:
    return contradiction(state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"entry {name} is no message")


def text_digest_of(state: Session, names: Sequence[str]) -> str:
    """The digest of the text of a message that the log has; of several, one of their digests."""
    kept = [found[_TEXT_AT:].hex() for name in names if isinstance(found := state.entries.get(name), bytes)]
    return kept[0] if len(kept) == 1 else digest_text("\n".join(kept))


def message_place(state: Session, logged: Position, name: str) -> int:
    """Where the message of that name stands."""
    kept = state.entries.get(name)
    if not isinstance(kept, bytes):
        raise _no_message(state, logged, name)
    return int.from_bytes(kept[_DIGEST_BYTES:_TEXT_AT], "big")


def input_place(state: Session, logged: Position, name: str) -> int:
    """Where the message of the user of that name stands."""
    kept = state.entries.get(name)
    place = message_place(state, logged, name) if isinstance(kept, bytes) else 0
    if not place or place & KIND != USER:
        raise _named_otherwise(state, logged, name, "UserMessage")
    return place


def messages_in(state: Session, logged: Position, entries: Iterable[Entry]) -> list[Message]:
    """The messages that these entries of the record are; each of them must be one."""
    found: list[Message] = []
    for entry in entries:
        if not isinstance(entry.content, UserMessage | AssistantMessage | ToolMessage):
            raise _no_message(state, logged, entry.entry_id)
        found.append(entry.content)
    return found


def use_of(kind: str, messages: Iterable[Message], context: JSON, run_id: str, hooks: Sequence[HookNote] = ()) -> KeyUse:
    """What a key stands for that delivers these messages, as they were before any hook."""
    said = tuple(original_input(hooks) or messages)
    text = "\n".join(message.text for message in said)
    parts = tuple(part for message in said for part in message.parts)
    return KeyUse(kind=kind, run_id=run_id, **digests_of_delivery(text, context, parts))


def use_key(state: Session, logged: Position, key: str | None, use: KeyUse) -> Session:
    """The state in which the key stands for this delivery. One key delivers one thing in a lineage (L5)."""
    if key is None:
        return state
    if key in state.keys:
        raise contradiction(state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"key {key!r} delivers a second time")
    return replace(state, keys=state.keys.plus(key, use))


def use_tags(state: Session, logged: Position, tags: Iterable[int]) -> Session:
    """The state behind these tags, which only ever rise (C47)."""
    top = state.next_tag
    for tag in tags:
        if tag < top:
            raise contradiction(state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"tag {tag} is given to a second part")
        top = tag + 1
    return state if top == state.next_tag else replace(state, next_tag=top)
