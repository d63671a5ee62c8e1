"""All frames of a session at once, as only a test may want them."""

from semel.core.frame import Frame
from semel.ports.log import SessionStore


def frames_of(store: SessionStore, session: str) -> tuple[Frame, ...]:
    """All frames that a reader may know."""
    return store.read(session).frames
