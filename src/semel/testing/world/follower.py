"""The log of a session as the device has it, folded as it grows: the measure of everything that is acknowledged or acted upon."""

from semel.adapters.file.names import directory_name
from semel.core.frame import Frame, good_frames, incomplete
from semel.core.header import Point
from semel.core.open_log import fold_frames, state_of
from semel.core.state import Session
from semel.testing.world.medium import Medium

STATE = "/sim/state"


def session_path(session: str) -> str:
    """Where a session is kept on the medium."""
    return f"{STATE}/sessions/{directory_name(session)}"


def log_path(session: str) -> str:
    """Where the log of a session is on the medium."""
    return f"{session_path(session)}/wal.log"


class Shrunk(Exception):
    """Records that were durable are no longer there."""


class Follower:
    """Follows one session. `states` has the state behind each write that is whole, by its head."""

    def __init__(self, medium: Medium, session: str) -> None:
        """Nothing is there yet."""
        self.session = session
        self.frames: list[Frame] = []
        self.states: dict[int, Session] = {}
        self._medium, self._path = medium, log_path(session)
        self._point = Point()
        self._folded = 0
        self._state = Session(session=session)

    @property
    def head(self) -> int:
        """The highest seq that is durable; 0 before the first record."""
        return self.frames[-1].seq if self.frames else 0

    @property
    def bytes_durable(self) -> int:
        """Where the last frame that is durable ends."""
        return self._point.offset

    def look(self) -> Session:
        """The state of what is durable by now, up to the last write that is whole. Raises Shrunk, and what the fold raises."""
        size = self._medium.durable_size(self._path)
        if size < self._point.offset:
            raise Shrunk(f"{self.session!r}: {self._point.offset} bytes were durable, {size} are left")
        if size > self._point.offset:
            new = self._medium.durable_bytes(self._path, self._point.offset)
            frames, self._point = good_frames(new, self._point)
            self.frames.extend(frames)
            self._fold()
        return self._state

    def opened(self) -> Session:
        """The state that whoever opens the log now begins with: what is left of a write that never became whole is torn."""
        state = self.look()
        return self._behind(self.frames[self._folded :]) if self._folded < len(self.frames) else state

    def _fold(self) -> None:
        """Fold each write that is whole; what a later tenure has left torn counts as that."""
        for at in range(self._folded, len(self.frames)):
            if self.frames[at].left:
                continue
            self._state = self._behind(self.frames[self._folded : at + 1])
            self._folded = at + 1
            self.states[self._state.head] = self._state

    def _behind(self, new: list[Frame]) -> Session:
        """The state behind these frames, which follow those that were folded."""
        torn = incomplete(new)
        if not self._folded:
            return state_of(new, torn, self.session)
        return fold_frames(new, torn, self._state)
