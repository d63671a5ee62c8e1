"""What a tool is told of its call, and what it can tell while it runs."""

import asyncio
import copy
import threading
from collections.abc import Callable
from typing import TypeVar

from semel.core.arguments import parse_arguments
from semel.core.records import ToolProcess
from semel.engine.barrier import Barrier
from semel.engine.feed import Feed, Live
from semel.engine.flight import Flight
from semel.errors import OutcomeUnknown
from semel.ports.tool import Call, CancelSignal, ProcessMark
from semel.ports.world import Clock

T = TypeVar("T")


class Line:
    """Between a run and the tools of its calls. It belongs to the event loop on which it is made."""

    def __init__(self, barrier: Barrier, feed: Feed, clock: Clock, deps: object) -> None:
        """`deps` is handed to each tool as it is."""
        self.processes: dict[str, ProcessMark] = {}
        self._barrier, self._feed, self._clock, self._deps = barrier, feed, clock, deps
        self._loop, self._home = asyncio.get_running_loop(), threading.get_ident()

    def call(self, flight: Flight, cancelled: CancelSignal) -> Call[object]:
        """What the tool is told of the call."""
        run, step, planned, timeout_ms = flight.run, flight.step, flight.call.planned, flight.spec.timeout_ms
        parsed = parse_arguments(step.arguments(planned.ordinal)) if step.answer else {}
        return Call(
            key=planned.call_key,
            tool=planned.tool,
            session=self._barrier.state.session,
            run_id=run.run_id,
            step_id=step.step_id,
            ordinal=planned.ordinal,
            context=None if run.context is None else copy.deepcopy(run.context),  # a tool cannot change what the next one sees
            deps=self._deps,
            arguments=parsed if isinstance(parsed, dict) else {},
            deadline=None if timeout_ms is None else self._clock.monotonic() + timeout_ms / 1000,
            cancelled=cancelled,
            progress=lambda text: self._on_the_loop(self._progress, flight, text),
            spawned=lambda mark: self._on_the_loop(self._spawned, flight, mark),
        )

    def _on_the_loop(self, act: Callable[[Flight, T], None], flight: Flight, fact: T) -> None:
        """A plain function runs in a thread of its own: what it tells is handed to the event loop, which wakes up for it."""
        if threading.get_ident() == self._home:
            act(flight, fact)
        else:
            self._loop.call_soon_threadsafe(act, flight, fact)

    def _progress(self, flight: Flight, text: str) -> None:
        run, step, key = flight.run, flight.step, flight.call.planned.call_key
        live = Live(live="progress", run_id=run.run_id, step_id=step.step_id, attempt=step.attempt, text=text, call_key=key)
        self._feed.publish(live)

    def _spawned(self, flight: Flight, mark: ProcessMark) -> None:
        """Take down which process serves the call. A deaf tool may start one behind its time, which its adapter has to end."""
        if flight.abandoned:
            raise OutcomeUnknown("nobody waits for this call any more")
        planned, batch = flight.call.planned, flight.step.batch
        self.processes[planned.call_key] = mark
        self._barrier.note(
            ToolProcess(
                batch_id=batch.batch_id if batch else "",
                ordinal=planned.ordinal,
                pid=mark.pid,
                started=mark.started,
                boot=mark.boot,
            )
        )
