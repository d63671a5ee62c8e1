"""A handle on one session of a runtime, with the agent that answers in it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from semel.core.status import Status
from semel.core.values import JSON
from semel.faces.agent import Agent
from semel.faces.run import RunHandle

if TYPE_CHECKING:
    from semel.faces.api import Runtime

OutputT = TypeVar("OutputT")


class SessionHandle(Generic[OutputT]):
    """A session of a runtime, with the agent that answers in it."""

    def __init__(self, runtime: "Runtime", session: str, agent: Agent[OutputT], context: JSON) -> None:
        self.id = session
        self._runtime = runtime
        self._agent = agent
        self._context = context

    async def send(self, text: str, *, key: str | None = None) -> RunHandle[OutputT]:
        """Start a run with this message; answered once it is durable. The same `key` again gives the same run.

        Raises KeyReuse (same key, other message), SessionBusy (a run is open), OutcomePending (the run before was just found to
        have an unknown call), BadAgent, BadSettings, UnknownModel, LogDamaged, NewerWriter. Where it raises, nothing was sent.
        """
        return await self._runtime.send(self.id, self._agent, text, key, self._context)

    async def resume(self) -> RunHandle[Any] | None:
        """Carry on the open run, if there is one."""
        return await self._runtime.resume(self.id)

    def state(self) -> Status | None:
        """What the session is doing, by reading its log; None before its first run."""
        return self._runtime.status(self.id)

    def events(self, *, after: int = 0) -> Iterator[dict[str, Any]]:
        """What the log holds with seq > `after`, in order, up to now; `RunHandle.events` goes on while a run works."""
        return self._runtime.events(self.id, after)
