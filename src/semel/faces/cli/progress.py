"""What one sees of runs under way: a line on a terminal, records with --verbose, text with --stream; else only long waits."""

import asyncio
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from semel.faces.cli.lines import duration, record_line, text_of_answer, usage_text
from semel.faces.cli.options import RunOptions
from semel.faces.cli.output import data, one_line, talk
from semel.faces.run import Glance, RunHandle
from semel.ports.world import Clock

if TYPE_CHECKING:
    from rich.status import Status

_REFRESH_SECONDS = 0.25


class Watch:
    """Watches the runs of one command. `begun` are the tasks whose run has started."""

    def __init__(self, options: RunOptions, clock: Clock) -> None:
        """`async with` it."""
        self.begun: set[asyncio.Task[Any]] = set()
        self._options, self._clock = options, clock
        self._runs: dict[str, RunHandle[Any]] = {}
        self._since = clock.monotonic()
        self._drawn: Status | None = None
        self._drawing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if sys.stderr.isatty() and not self._options.stream:
            from rich.console import Console
            from rich.status import Status

            self._drawn = Status("starting", console=Console(stderr=True))
            self._drawn.start()
            self._drawing = asyncio.ensure_future(self._draw())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._drawing is not None and self._drawn is not None:
            self._drawing.cancel()
            await asyncio.wait({self._drawing})
            self._drawn.stop()

    async def see(self, run: RunHandle[Any]) -> None:
        """Watch a run to its rest. Raises what keeps it from going on."""
        task = asyncio.current_task()
        if task is not None:
            self.begun.add(task)
        self._runs[run.run_id] = run
        self._tell_start(run)
        showing = asyncio.ensure_future(self._show(run))
        try:
            await run.rest()
            await showing
        finally:
            del self._runs[run.run_id]
            showing.cancel()

    def _tell_start(self, run: RunHandle[Any]) -> None:
        for warning in run.warnings:
            talk(f"semel: {warning}")
        for key in run.leftovers:
            talk(f"semel: ended what a dead process had left running of call {key[:8]}")
        glance = run.glance()
        if glance is not None and (self._options.verbose or sys.stderr.isatty()):
            talk(f"session {run.session}, run {run.run_id[:8]}: {glance.agent} on {glance.model}; {_limits(glance)}")

    async def _show(self, run: RunHandle[Any]) -> None:
        why, told, screen = "", set[str](), Screen(self._options)
        async for event in run.events(after=run.before, live=True):
            why = event["text"] if event.get("live") == "progress" and "call_key" not in event else why
            if event.get("type") == "model_retry" and why not in told:
                told.add(why)
                wait = duration(max(0, event["record"]["not_before_ms"] - event["at_ms"]))
                talk(f"semel: {why or 'the model did not answer'}; it is asked again in {wait}{_at_most(run)}")
            screen.show(event)

    async def _draw(self) -> None:
        from rich.text import Text

        while True:
            told = [_progress(glance) for run in list(self._runs.values()) if (glance := run.glance()) is not None]
            elapsed = duration(int((self._clock.monotonic() - self._since) * 1000))
            if self._drawn is not None and told:
                self._drawn.update(Text(one_line("; ".join([*told, elapsed]), 400)))
            await self._clock.sleep(_REFRESH_SECONDS)


class Screen:
    """What one sees of a run: its records, or its text as it arrives; what was missed of that comes from the record."""

    def __init__(self, options: RunOptions) -> None:
        """`verbose` shows records, `stream` text."""
        self._options = options
        self._seen = ""  # of the answer that is under way

    def show(self, event: dict[str, Any]) -> None:
        """The next event of the run."""
        options = self._options
        if "seq" in event:
            if options.verbose:
                talk(record_line(event))
            if options.stream and event["type"] == "model_step_finished":
                self._finish(text_of_answer(event["record"]))
        elif options.stream and event["live"] == "text":
            self._seen += event["text"]
            data(event["text"])
        elif options.stream and event["live"] == "discarded" and self._seen:  # cut, refused, given up, or changed by a hook
            self._seen = ""
            data("\n")
            talk("semel: what was shown of that answer does not count")

    def _finish(self, text: str) -> None:
        """One who came late, or was too slow, has not seen all of it."""
        data(f"{text[len(self._seen) :]}\n" if text.startswith(self._seen) else f"\n{text}\n")
        self._seen = ""


def _at_most(run: RunHandle[Any]) -> str:
    """How often a step of the run may be asked again, in words."""
    glance = run.glance()
    times = 1 if glance is None else glance.limits.model_retries
    return f", {times} times at most" if times > 1 else ""


def _progress(glance: Glance) -> str:
    """Step, current call, tokens and cost of a run."""
    doing = f"waits for {', '.join(glance.calls)}" if glance.calls else "asks the model"
    return f"step {glance.step_id} of {glance.limits.steps}, {doing}, {usage_text(glance.usage)}"


def _limits(glance: Glance) -> str:
    limits = glance.limits
    cost = "no cost limit" if limits.cost is None else f"at most {limits.cost}"
    return f"limits: {limits.steps} steps, {limits.tokens:,} tokens, {duration(limits.wall_ms)}, {cost}"
