"""`chat`: a conversation at the terminal. A line while a run works is a steer, any other starts one."""

import asyncio
import sys
import threading
from contextlib import redirect_stdout, suppress
from typing import Any

import click
from msgspec.structs import replace

from semel.core.status import is_left
from semel.engine.resume import Ground
from semel.errors import RunNotCompleted, SemelError
from semel.faces.api import Runtime
from semel.faces.cli.carry import DRAIN_SECONDS, finder, ground_of
from semel.faces.cli.endings import ending_line
from semel.faces.cli.options import RunOptions, run_options
from semel.faces.cli.output import talk
from semel.faces.cli.progress import show_event
from semel.faces.cli.remedies import command, with_state
from semel.faces.cli.sending import agent_for
from semel.faces.cli.verbs import verb
from semel.faces.handles import SessionHandle
from semel.faces.report import report_of
from semel.faces.run import RunHandle
from semel.faces.signals import Stop


@verb("semel chat", "semel chat --session customer-42", "semel chat --model openai:gpt-5")
@click.option("--session", metavar="ID", help="The session to talk in; made if it is new. By default a fresh one.")
@run_options
def chat(*, session: str | None, options: RunOptions) -> int:
    """Talk to an agent, a message a line, until the end of input (Ctrl-D).

    A line that is sent while the agent works reaches its next request; any other starts a run. All of it is durable, and a run
    that is cut short by Ctrl-C goes on with `resume`. The agent is found as by `run`. A line that is refused says why, and the
    conversation goes on.
    """
    if options.as_json:
        raise click.UsageError("a chat has no --json; follow the records with `semel tail --follow --json`")
    ground = ground_of(options.state)
    name = session or f"s-{ground.ids.fresh()[:16]}"
    with redirect_stdout(sys.stderr):  # what a Python tool prints is talk
        return asyncio.run(Chat(ground, replace(options, stream=True), name).talk())


class Chat:
    """One conversation."""

    def __init__(self, ground: Ground, options: RunOptions, session: str) -> None:
        """Nothing is written before the first message."""
        self._ground, self._options, self._session = ground, options, session
        self._shown: dict[str, asyncio.Task[None]] = {}

    async def talk(self) -> int:
        """Until the input ends or a signal comes; then what is under way gets to its end, or is left for a resume."""
        stop, lines = Stop(), _lines_of_stdin()
        stop.listen()
        agent = agent_for(self._session, self._options, self._ground)
        find = finder(self._options, self._ground)
        runtime = Runtime(ground=self._ground, recover="manual", inline_sync=True, drain_seconds=DRAIN_SECONDS, find_agent=find)
        talk(f"session {self._session}: a message a line; Ctrl-D ends")
        async with runtime:
            talking = asyncio.ensure_future(self._take(lines, runtime.session(self._session, agent=agent)))
            waiting: list[asyncio.Future[Any]] = [talking, stop.asked]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if stop.asked.done():
                talking.cancel()
                await asyncio.wait({talking})
        await asyncio.gather(*self._shown.values())
        if stop.number is not None:
            talk(f"semel: stopped. What was durable stays; {command('resume', self._session)} goes on")
            return 128 + stop.number
        return await talking

    async def _take(self, lines: "asyncio.Queue[str | None]", session: SessionHandle[Any]) -> int:
        while (line := await lines.get()) is not None:
            if not line.strip():
                continue
            try:
                run = await session.send(line.rstrip("\n"), delivery="steer")
            except SemelError as error:
                talk(f"semel: {with_state(str(error))}")
                continue
            showing = self._shown.get(run.run_id)
            if showing is None or showing.done():  # one that waited goes on
                self._shown[run.run_id] = asyncio.ensure_future(self._show(run))
        await asyncio.gather(*self._shown.values())
        report = report_of(self._ground.store, self._session) if self._ground.store.exists(self._session) else None
        return 0 if report is None else report.status.exit

    async def _show(self, run: RunHandle[Any]) -> None:
        try:
            async for event in run.events(after=run.before, live=True):
                show_event(event, self._options)
            with suppress(RunNotCompleted):
                await run.result()
        except SemelError as error:
            talk(f"semel: {with_state(str(error))}")
        report = report_of(self._ground.store, self._session, run.run_id)
        if report is not None and report.status.state != "completed" and not is_left(report.status):
            talk(f"semel: {ending_line(report.status)}")


def _lines_of_stdin() -> "asyncio.Queue[str | None]":
    """The lines as they come; None at their end. The thread that reads them never keeps the process from ending."""
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        with suppress(RuntimeError):  # the loop has ended before the input did
            for line in sys.stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    return lines
