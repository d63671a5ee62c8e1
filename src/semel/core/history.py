"""A session that starts from a conversation held elsewhere: the one entry for supplied and imported history (T7, T22). Pure."""

from collections.abc import Mapping, Sequence

from semel.core.effects import Decision
from semel.core.pairing import check_history
from semel.core.records import Entry, HistorySupplied
from semel.core.state import Session
from semel.core.values import Message, ToolSpec, derived_id
from semel.errors import BadHistory


def supply_history(
    state: Session,
    messages: Sequence[Message],
    *,
    format: str,  # noqa: A002 - the word of the command line and of the record
    source_sha256: str | None = None,
    tools: Mapping[str, ToolSpec] | None = None,
) -> Decision:
    """The record that opens a session with this history; nothing is sent to a model.

    Raises BadHistory, naming the place and the rule, and where the session has a conversation already.
    """
    if state.newest is not None or len(state.transcript):
        raise BadHistory(f"session {state.session!r} has a conversation already; a history can only open one")
    if not messages:
        raise BadHistory("the history has no messages")
    check_history(messages, tools=tools)
    entries = tuple(
        Entry(entry_id=derived_id("history", state.lineage, at), content=message) for at, message in enumerate(messages)
    )
    return Decision(records=(HistorySupplied(format=format, entries=entries, source_sha256=source_sha256),))
