"""A session of a runtime, with the agent that answers in it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from semel.core.records import Delivery, LateKind
from semel.core.status import Status
from semel.core.values import JSON, Frozen
from semel.faces.agent import Agent
from semel.faces.files import Files
from semel.faces.run import RunHandle

if TYPE_CHECKING:
    from semel.faces.api import Runtime

OutputT = TypeVar("OutputT")


class Delivered(Frozen, frozen=True, kw_only=True):
    """A message that is durable. `run_id` is the run that takes it up: the open one, or the one that it starts."""

    session: str
    key: str
    delivery: str
    run_id: str


class SessionHandle(Generic[OutputT]):
    """A session of a runtime, with the agent that answers in it."""

    def __init__(self, runtime: "Runtime", session: str, agent: Agent[OutputT], context: JSON) -> None:
        self.id = session
        self._runtime = runtime
        self._agent = agent
        self._context = context

    async def send(
        self, text: str, *, key: str | None = None, delivery: Delivery | None = None, files: Files = ()
    ) -> RunHandle[OutputT]:
        """Start a run with this message; answered once it is durable. The same `key` again gives the same run.

        `files` go along: pictures and documents by their paths, or as File.

        While a run is open, `delivery` says what becomes of the message: "queue" has it start a run of its own behind that one,
        "interrupt" too, but cancels that one first; "steer" and "follow_up" put it into that run, whose handle is returned.
        Without an open run each of them starts one (Q6, HAZ6).

        Raises KeyReuse (same key, other message), SessionBusy (a run is open), OutcomePending (the run before was just found to
        have an unknown call), BadAgent, BadSettings, UnknownModel, LogDamaged, NewerWriter. Where it raises, nothing was sent.
        """
        return await self._runtime.send(
            self.id, self._agent, text, key=key, context=self._context, delivery=delivery, files=files
        )

    async def steer(self, text: str, *, key: str | None = None) -> Delivered:
        """Tell the open run something: its next request has it (Q1). Answered once it is durable; raises as `send` does."""
        return await self._told(text, key, "steer")

    async def follow_up(self, text: str, *, key: str | None = None) -> Delivered:
        """Tell the open run something for when it would otherwise stop (Q6). Answered once durable; raises as `send` does."""
        return await self._told(text, key, "follow_up")

    async def retract(self, key: str, *, by: str | None = None) -> None:
        """Take back a message that waits in the queue. Raises UnknownMessage where none does."""
        await self._runtime.retract(self.id, key, by=by)

    async def cancel(self, *, at: Literal["now", "step_boundary"] = "now", by: str | None = None) -> RunHandle[Any] | None:
        """End the open run, now or behind its step; answered once that is durable, None where no run is open (Q14, R26)."""
        return await self._runtime.cancel(self.id, at=at, by=by)

    async def stop(self, *, by: str | None = None) -> RunHandle[Any] | None:
        """End the open run as `max_steps`: behind its turn, or at once where it waits (A7, R38). Answered as `cancel` is."""
        return await self._runtime.stop(self.id, by=by)

    async def approve(
        self, call: str, *, by: str | None = None, arguments: str | None = None, note: str | None = None
    ) -> RunHandle[Any] | None:
        """See `Runtime.approve`."""
        return await self._runtime.approve(call, by=by, arguments=arguments, note=note)

    async def deny(self, call: str, *, by: str | None = None, note: str | None = None) -> RunHandle[Any] | None:
        """See `Runtime.deny`."""
        return await self._runtime.deny(call, by=by, note=note)

    async def deliver(
        self, call: str, text: str, *, is_error: bool = False, kind: LateKind = "delivered", event_id: str | None = None
    ) -> RunHandle[Any] | None:
        """See `Runtime.deliver`."""
        return await self._runtime.deliver(call, text, is_error=is_error, kind=kind, event_id=event_id)

    async def resume(self, *, go_on: bool = False) -> RunHandle[Any] | None:
        """Carry on the open run, if there is one; see `Runtime.resume`."""
        return await self._runtime.resume(self.id, go_on=go_on)

    def state(self) -> Status | None:
        """What the session is doing, by reading its log; None before its first run."""
        return self._runtime.status(self.id)

    def events(self, *, after: int = 0) -> Iterator[dict[str, Any]]:
        """What the log holds with seq > `after`, in order, up to now; `RunHandle.events` goes on while a run works."""
        return self._runtime.events(self.id, after)

    async def _told(self, text: str, key: str | None, delivery: Delivery) -> Delivered:
        key = self._runtime.new_key() if key is None else key
        run = await self._runtime.send(self.id, self._agent, text, key=key, context=self._context, delivery=delivery)
        return Delivered(session=self.id, key=key, delivery=delivery, run_id=run.run_id)
