"""One call under way. Its tool runs in the task that brings the outcome of the call; from outside it is ended through here."""

import asyncio
from collections.abc import Awaitable, Callable

from semel.core.effects import Deferral, Hold
from semel.core.outcomes import Happening, Settlement, classify_exception
from semel.core.state import CallState, Run, Step
from semel.core.values import JSON, Effect
from semel.engine.deaf import abandon
from semel.engine.media import Gave, outcome_of
from semel.errors import need
from semel.ports.tool import CANCEL_GRACE_SECONDS, Deferred, Done, Held

Gives = JSON | Done | Deferred | Held
"""What a tool returns."""
CameTo = Happening | Gave | Deferred | Held
"""What a tool came to."""
Back = Settlement | Deferral | Hold
"""What its call comes back with."""


class Flight:
    """A call of the open batch that has been released.

    `task` brings its outcome: first the one in which the tool runs, then the one that took over from it, where there is more to
    wait for behind the tool, or the tool is deaf. `done` says that it has, and `back` is the outcome, None for a call left
    open, or `error` what kept it from having one. `cancelled` is what the tool can ask, `timed_out` whether its own time is why.
    `abandoned` says that nobody waits for the tool any more: what it still brings is dropped.
    """

    def __init__(self, run: Run, step: Step, call: CallState, deaf: "Callable[[Flight], None]") -> None:
        """Nothing is started yet. `deaf` takes over where the tool does not end when it is told to."""
        self.run, self.step, self.call = run, step, call
        self.spec = need(run.tool(call.planned.tool), "a dispatchable call names an offered tool")
        self.task: asyncio.Task[Back | None] | asyncio.Task[None] | None = None
        self.done = False
        self.back: Back | None = None
        self.error: BaseException | None = None
        self.cancelled = asyncio.Event()
        self.timed_out = False
        self.abandoned = False
        self._deaf = deaf
        self._tool: asyncio.Task[object] | None = None
        self._grace: asyncio.TimerHandle | None = None

    @property
    def asks(self) -> bool:
        """Whether the outside is asked what became of it, where that is not known."""
        return self.spec.reconciles and self.spec.effect is Effect.ONCE

    @property
    def in_tool(self) -> bool:
        """Whether its tool is running and its outcome is waited for."""
        return self._tool is not None and self._tool is self.task

    async def through(self, run: Callable[[], Awaitable[Gives]], time: "asyncio.Future[None] | None") -> CameTo:
        """Run the tool to its end in the task that calls this; `time` is done when its time is up. Nothing it raises escapes."""
        me = self._tool = need(asyncio.current_task(), "a tool runs in a task")
        if time is not None:
            time.add_done_callback(self._time_is_up)
        try:
            value = await run()
        except BaseException as error:  # the one place where whatever a tool raises becomes an outcome
            if isinstance(error, GeneratorExit) and asyncio.current_task(me.get_loop()) is not me:
                raise  # no tool raised it: the event loop is gone, and with it whoever waits
            return classify_exception(error)
        finally:
            self._tool = None
            for timer in (time, self._grace):
                if timer is not None:
                    timer.cancel()
        match value:
            case Deferred() | Held():
                return value
            case Done():
                return outcome_of(value.value, terminate=True)
            case _:
                return outcome_of(value)

    def end(self, *, timed_out: bool = False) -> None:
        """Tell the tool to end, if it is running and may be interrupted; one that may not is waited for (Q12)."""
        if self._tool is None or not self.spec.interruptible or self.cancelled.is_set():
            return
        self.timed_out = timed_out
        self.cancelled.set()
        self._tool.cancel()
        self._grace = self._tool.get_loop().call_later(CANCEL_GRACE_SECONDS, self._deaf, self)

    def abandon(self) -> None:
        """Wait for its tool no longer, which is deaf."""
        self.abandoned = True
        if self._tool is not None:
            abandon(self._tool, f"tool {self.spec.name}", call=self.call.planned.call_key)
            self._tool = None

    def drop(self) -> None:
        """Cancel whatever is under way for the call; nobody waits for its outcome any more."""
        self.abandoned = True
        self.cancelled.set()
        if self._grace is not None:
            self._grace.cancel()
        if self.task is not None:
            self.task.cancel()

    def _time_is_up(self, time: "asyncio.Future[None]") -> None:
        if not time.cancelled():
            self.end(timed_out=True)
