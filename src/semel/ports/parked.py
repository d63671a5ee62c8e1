"""Who is told that a session waits for a person.

PARKED-1  `tell` returns when somebody was told, or had been told before; it raises where nobody could be.
PARKED-2  The same key is told once. Where the process dies between telling and remembering it, the key is told again.
"""

from typing import Protocol

from semel.core.values import Frozen


class ParkedCall(Frozen, frozen=True, kw_only=True):
    """A call that a person has to look at. `kind` is `unknown`, `approval` or `held`."""

    call_key: str
    tool: str
    arguments: str
    kind: str


class Parked(Frozen, frozen=True, kw_only=True):
    """A session that waits. `key` names this waiting and nothing else: the run, and the calls that it began with, or its step.

    `seq` is the record that made it wait, and `calls` are those that still do. Without them the run waits for another key
    (`reason` is `auth_required`), as `why` tells.

    `state` and `reason` are those of status.json; `next` is the command that goes on.
    """

    key: str
    session: str
    run_id: str
    agent: str
    seq: int
    state: str
    reason: str
    calls: tuple[ParkedCall, ...]
    why: str | None = None
    next: str = "semel inbox"


class ParkedHook(Protocol):
    """Tells a person."""

    async def tell(self, parked: Parked) -> None:
        """Tell it once. Raises StoreError where it could not be told."""
