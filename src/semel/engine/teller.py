"""Has a person told of sessions that wait for one, beside everything else: no run and no lease waits for it."""

import asyncio
from collections.abc import Callable

from semel.core.parked import began_with, wants_a_look
from semel.core.state import Session
from semel.core.status import status_of
from semel.core.values import derived_id
from semel.core.waiting import WaitKind, pause_of
from semel.ports.parked import Parked, ParkedCall, ParkedHook


class Teller:
    """Tells each waiting once, as far as its hook remembers. What goes wrong is written down, and told at the next start."""

    def __init__(self, hook: ParkedHook | None, write_down: Callable[[str, str, BaseException], None]) -> None:
        """Without a hook nobody is told."""
        self._hook = hook
        self._write_down = write_down
        self._told: set[str] = set()
        self._telling: set[asyncio.Task[None]] = set()

    def look_at(self, state: Session) -> None:
        """Have a person told, if a session at rest waits for one."""
        parked = parked_of(state) if self._hook is not None else None
        if parked is None or self._hook is None or parked.key in self._told:
            return
        self._told.add(parked.key)
        telling = asyncio.ensure_future(self._tell(self._hook, parked))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def close(self) -> None:
        """Wait until everybody was told; a hook has its own limit of time."""
        if self._telling:
            await asyncio.wait(self._telling)

    async def _tell(self, hook: ParkedHook, parked: Parked) -> None:
        try:
            await hook.tell(parked)
        except Exception as error:  # noqa: BLE001  a page that fails fails no run
            self._told.discard(parked.key)
            self._write_down(parked.session, "tell", error)


def parked_of(state: Session) -> Parked | None:
    """What to tell; None where nobody is needed."""
    calls = wants_a_look(state)
    status = status_of(state, state.digest)
    run = state.run if pause_of(state) is WaitKind.AUTH_REQUIRED else None
    if status is None or not (calls or run is not None):
        return None
    names, seq = began_with(state)
    return Parked(
        key=derived_id("parked", state.lineage, status.run_id, *names),
        session=state.session,
        run_id=status.run_id,
        agent=status.agent,
        seq=seq,
        state=status.state,
        reason=status.reason or status.state,
        calls=tuple(ParkedCall(call_key=key, tool=tool, arguments=arguments, kind=kind) for key, tool, arguments, kind in calls),
        why=run.pause.error.message if run is not None and run.pause is not None and run.pause.error is not None else None,
    )
