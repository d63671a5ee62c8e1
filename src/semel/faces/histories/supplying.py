"""Start a session from a conversation held elsewhere: read it, hold it against the contract, write it as one record (T22)."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from semel.core.decide import supply_history
from semel.core.effects import Decision
from semel.core.state import Session
from semel.engine.feed import Feed
from semel.engine.resume import Ground, open_session
from semel.errors import BadHistory, BadSettings
from semel.faces.histories.reading import Foreign
from semel.faces.views import view_of

FORMATS: Mapping[str, str] = {
    "anthropic": "semel.faces.histories.anthropic",
    "openai_chat": "semel.faces.histories.openai_chat",
    "openai_responses": "semel.faces.histories.openai_responses",
}
FILE_BYTES_MOST = 64 * 1024 * 1024


def read_history(path: Path, format: str) -> Foreign:  # noqa: A002 - the word of the command line
    """The history of a file. Raises BadHistory with the place, BadSettings for a file that cannot be read."""
    try:
        size = path.stat().st_size
        raw = path.read_bytes() if size <= FILE_BYTES_MOST else b""
    except OSError as error:
        raise BadSettings(f"{path} cannot be read: {error.strerror or error}") from None
    if size > FILE_BYTES_MOST:
        raise BadHistory(f"{path} has {size} bytes; a history may have {FILE_BYTES_MOST}")
    read = import_module(FORMATS[format]).read
    found: Foreign = read(raw)
    return found


async def supply_session(ground: Ground, session: str, foreign: Foreign, format: str) -> int:  # noqa: A002 - as above
    """Open a new session with this history; returns its last record's number. Nothing is sent to a model.

    Raises BadHistory where the contract is broken, or the session has a conversation already, and SessionBusy. Then nothing was
    written.
    """

    def decide(state: Session) -> Decision:
        return supply_history(state, foreign.messages, format=format, source_sha256=foreign.source_sha256, tools=foreign.tools)

    there = ground.store.exists(session)
    decide(view_of(ground.store, session).state if there else Session(session=session))  # what is refused makes no session
    writer, barrier = await open_session(ground, session, Feed())
    try:
        await barrier.commit(decide(barrier.state).records)
        return barrier.state.head
    finally:
        await writer.close()
