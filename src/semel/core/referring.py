"""What a record refers to, looked up in the state before it: the open run, its step, entries, keys and tags.

A reference to what is over, or never was, is a contradiction (K2, K3, K11); so every fold finds what it names through these.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from semel.core.calls import Step
from semel.core.corruption import Reason, contradiction, same_entry
from semel.core.hook_notes import HookNote, original_input
from semel.core.keys import digests_of_delivery
from semel.core.records import Config, Content, Entry, Instructions, ToolSet
from semel.core.state import KeyUse, Logged, Run, Session
from semel.core.values import JSON, AssistantMessage, Message, ToolMessage, UserMessage
from semel.errors import need

C = TypeVar("C", Config, Instructions, ToolSet, UserMessage)


def open_run(state: Session, logged: Logged, run_id: str) -> Run:
    """The open run, if it is the one named; else the log references what is over or never was (K2, K3)."""
    if state.run is not None and state.run.run_id == run_id:
        return state.run
    if run_id in state.ended:
        raise contradiction(state, logged, Reason.RECORD_AFTER_FINISH, f"run {run_id} is finished")
    raise contradiction(state, logged, Reason.UNKNOWN_OPERATION, f"run {run_id} was never started")


def in_flight(state: Session, logged: Logged, run_id: str, step_id: int) -> tuple[Run, Step]:
    """The open run and its step, which has no answer yet."""
    run = open_run(state, logged, run_id)
    step = run.in_flight
    if step is None or step.step_id != step_id:
        raise contradiction(state, logged, Reason.INCONSISTENT_STEP, f"step {step_id} is not in flight")
    return run, step


def with_step(state: Session, step: Step) -> Session:
    """The state with a newer state of the open step."""
    return replace(state, run=replace(need(state.run, "a step belongs to the open run"), step=step))


def keep_entries(state: Session, logged: Logged, entries: Iterable[Entry]) -> Session:
    """The state that holds these entries. An id that is known must name equal content (K15)."""
    table = state.entries
    for entry in entries:
        found = table.get(entry.entry_id)
        if found is None:
            table = table.plus(entry.entry_id, entry.content)
        elif not same_entry(entry.content, found):
            raise contradiction(state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"entry {entry.entry_id} has two contents")
    return replace(state, entries=table)


def entry_of(state: Session, logged: Logged, name: str, kind: type[C]) -> C:
    """The entry of that name, which must be of this kind."""
    content: Content | None = state.entries.get(name)
    if not isinstance(content, kind):
        raise contradiction(
            state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"entry {name} is not the {kind.__name__} that it is named as"
        )
    return content


def message_of(state: Session, logged: Logged, name: str) -> Message:
    """The message of that name."""
    content = state.entries.get(name)
    if not isinstance(content, UserMessage | AssistantMessage | ToolMessage):
        raise contradiction(state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"entry {name} is no message")
    return content


def use_of(kind: str, messages: Iterable[Message], context: JSON, run_id: str, hooks: Sequence[HookNote] = ()) -> KeyUse:
    """What a key stands for that delivers these messages, as they were before any hook."""
    said = tuple(original_input(hooks) or messages)
    text = "\n".join(message.text for message in said)
    parts = tuple(part for message in said for part in message.parts)
    return KeyUse(kind=kind, run_id=run_id, **digests_of_delivery(text, context, parts))


def use_key(state: Session, logged: Logged, key: str | None, use: KeyUse) -> Session:
    """The state in which the key stands for this delivery. One key delivers one thing in a lineage (L5)."""
    if key is None:
        return state
    if key in state.keys:
        raise contradiction(state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"key {key!r} delivers a second time")
    return replace(state, keys=state.keys.plus(key, use))


def use_tags(state: Session, logged: Logged, tags: Iterable[int]) -> Session:
    """The state behind these tags, which only ever rise (C47)."""
    top = state.next_tag
    for tag in tags:
        if tag < top:
            raise contradiction(state, logged, Reason.PROVISIONED_ENTRY_MISMATCH, f"tag {tag} is given to a second part")
        top = tag + 1
    return state if top == state.next_tag else replace(state, next_tag=top)
