"""What went wrong in this process, for whoever runs it: the failure diary and the outcome of a stop (F6-F11).

It lives as long as its process and replaces nothing: what a session needs after a restart is found by reading its log.
"""

from collections import deque

from semel.core.values import Frozen, printable
from semel.errors import SemelError, SessionBusy, SessionFull, UsageError

INCIDENTS_MOST = 1000
EVERY_SESSION = ""
"""The session of a failure that concerns them all: the state directory does not tell which it has. No session is called so."""
_MESSAGE_CHARS_MOST = 500


class Incident(Frozen, frozen=True, kw_only=True):
    """One failure. `stage` is `recover`, `begin`, `carry`, `close`, `look` or `tell`; `code` the error's or its class's.

    `session` is `EVERY_SESSION`, the empty text, where it is not known which there are, and the name of a directory where it is
    not known whose that is.
    """

    session: str
    stage: str
    at_ms: int
    code: str
    message: str


class StopOutcome(Frozen, frozen=True, kw_only=True):
    """How a runtime was left. `sessions` were held when it stopped; `failures` happened while they were given back.

    `deaf` are threads of tools, and tools, hooks and models on the event loop, that did not end when they were told to. Threads
    end with the process, which does not wait for them; the others with their event loop, for which `asyncio.run` waits.
    `debts` are sessions whose recovery is owed, each with its newest incident, also where this stop went well (F9).
    """

    sessions: tuple[str, ...]
    failures: tuple[Incident, ...]
    debts: dict[str, Incident]
    deaf: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether every session that was held was given back without a failure."""
        return not self.failures


class Diary:
    """The failures of one runtime, the newest last, and which sessions still owe a recovery. `dropped` older ones are gone."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self._incidents: deque[Incident] = deque(maxlen=INCIDENTS_MOST)
        self.count = 0
        self.debts: dict[str, Incident] = {}

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """The newest failures, in order."""
        return tuple(self._incidents)

    @property
    def dropped(self) -> int:
        """How many older ones were let go."""
        return self.count - len(self._incidents)

    def write_down(self, session: str, stage: str, at_ms: int, error: BaseException) -> None:
        """Keep a failure. The session owes a recovery from now on, unless the error says that it is well and only refuses."""
        code = error.code if isinstance(error, SemelError) else type(error).__name__
        message = printable(str(error)[: 4 * _MESSAGE_CHARS_MOST], limit=_MESSAGE_CHARS_MOST)
        incident = Incident(session=session, stage=stage, at_ms=at_ms, code=code, message=message)
        self._incidents.append(incident)
        self.count += 1
        if not isinstance(error, UsageError | SessionBusy | SessionFull):
            self.debts[session] = incident

    def recovered(self, session: str) -> None:
        """The session was opened, recovered and synced; nothing else clears a debt (F10)."""
        self.debts.pop(session, None)

    def since(self, count: int) -> tuple[Incident, ...]:
        """The failures after the first `count`."""
        new = self.count - count
        return self.incidents[-new:] if new else ()
