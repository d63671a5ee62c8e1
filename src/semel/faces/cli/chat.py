"""`chat`: a conversation at the terminal. A line while a run works is a steer, any other starts one."""

import asyncio
import sys
import threading
from collections.abc import Coroutine, Sequence
from contextlib import aclosing, redirect_stdout, suppress
from typing import Any

import click
from msgspec.structs import replace

from semel import wiring
from semel.core.status import is_left
from semel.engine.resume import Ground
from semel.errors import SemelError, SessionBusy, need
from semel.faces.api import Runtime
from semel.faces.cli.carry import DRAIN_SECONDS, finder, ground_of, tell_of_deaf, told_stop
from semel.faces.cli.endings import ending_line
from semel.faces.cli.options import RunOptions, run_options
from semel.faces.cli.output import talk
from semel.faces.cli.owner import Turns, tell_of_leaving
from semel.faces.cli.progress import Screen
from semel.faces.cli.remedies import command, with_state
from semel.faces.cli.sending import agent_for
from semel.faces.cli.verbs import verb
from semel.faces.handles import SessionHandle
from semel.faces.own_loop import run_in_own_loop
from semel.faces.owner import ask_owner, run_events
from semel.faces.report import Report, report_in, report_of
from semel.faces.run import RunHandle
from semel.faces.views import view_of
from semel.ports.control import Contact, Item
from semel.settings import read_settings


@verb("semel chat", "semel chat --session customer-42", "semel chat --model openai:gpt-5")
@click.option("--session", metavar="ID", help="The session to talk in; made if it is new. By default a fresh one.")
@run_options
def chat(*, session: str | None, options: RunOptions) -> int:
    """Talk to an agent, a message a line, until the end of input (Ctrl-D).

    A line that is sent while the agent works reaches its next request; any other starts a run. All of it is durable, and a run
    that is cut short by Ctrl-C goes on with `resume`. The agent is found as by `run`. A line that is refused says why, and the
    conversation goes on. Where another process has the session, the lines go there, and what it does is shown; a run that it
    leaves is gone on with here. So is one that waited, when somebody has answered from anywhere.
    """
    if options.as_json:
        raise click.UsageError("a chat has no --json; follow the records with `semel tail --follow --json`")
    ground = ground_of(options.state)
    name = session or f"s-{ground.ids.fresh()[:16]}"
    with redirect_stdout(sys.stderr):  # what a Python tool prints is talk
        return run_in_own_loop(Chat(ground, replace(options, stream=True), name).talk())


class Chat:
    """One conversation, with a session that this process runs, or another one."""

    def __init__(self, ground: Ground, options: RunOptions, session: str) -> None:
        """Nothing is written before the first message."""
        self._ground, self._options, self._session = ground, options, session
        self._logs = wiring.store_of(read_settings(options.state))
        self._shown: dict[str, asyncio.Task[None]] = {}
        self._patient: dict[str, asyncio.Task[None]] = {}
        self._box: SessionHandle[Any] | None = None
        self._lacking: SemelError | None = None
        self._refused: SemelError | None = None

    async def talk(self) -> int:
        """Until the input ends or a signal comes; then what is under way gets to its end, or is left for a resume."""
        stop, lines = told_stop(), _lines_of_stdin()
        stop.listen()
        find = finder(self._options, self._ground)
        self._runtime = Runtime(ground=self._ground, inline_sync=True, drain_seconds=DRAIN_SECONDS, find_agent=find)
        async with self._runtime:  # which knows no agent yet, so that it takes up no other session
            self._prepare()
            talk(f"session {self._session}: a message a line; Ctrl-D ends")
            self._attach()
            talking = asyncio.ensure_future(self._take(lines))
            waiting: list[asyncio.Future[Any]] = [talking, stop.asked]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if stop.asked.done():
                await _cut([talking])
            elsewhere = [run for run in self._shown if not self._is_ours(run)]
            await _cut([*self._patient.values(), *(self._shown.pop(run) for run in elsewhere)])
        tell_of_deaf(self._runtime)
        await asyncio.gather(*self._shown.values())
        if stop.number is not None:
            goes_on = "its run goes on in its own process" if elsewhere else f"{self._next()} goes on"
            talk(f"semel: stopped. What was durable stays; {goes_on}")
            return 128 + stop.number
        return await talking

    def _next(self) -> str:
        """The command that goes on with the session."""
        known = self._ground.store.exists(self._session)
        is_open = known and view_of(self._ground.store, self._session).state.run is not None
        return command("resume", self._session) if is_open else command("chat", "--session", self._session)

    def _prepare(self) -> None:
        """Find the agent, which is not needed as long as another process has the session."""
        try:
            agent = agent_for(self._session, self._options, self._ground)
            self._box = self._runtime.session(self._session, agent=agent)
        except SemelError as error:
            if self._owner() is None:
                raise
            self._lacking = error

    def _owner(self) -> Contact | None:
        control = self._ground.control
        return control.contact(self._session) if control is not None and self._ground.store.exists(self._session) else None

    def _attach(self) -> None:
        """Show what another process does in the session, or go on with what a dead one has left in it."""
        contact, store = self._owner(), self._ground.store
        if contact is not None:
            talk(f"semel: {contact.owner} has this session, with its own agent; your lines go there, and what it does is shown")
        run = view_of(store, self._session).state.run if store.exists(self._session) else None
        if run is not None:
            self._shown[run.run_id] = asyncio.ensure_future(self._show_elsewhere(run.run_id))

    async def _take(self, lines: "asyncio.Queue[str | None]") -> int:
        while (line := await lines.get()) is not None:
            if not line.strip():
                continue
            try:
                await self._send(line.rstrip("\n"))
            except SemelError as error:
                talk(f"semel: {with_state(str(error))}")
        await self._see_out()
        return self._how_it_ended()

    async def _see_out(self) -> None:
        """Behind the input: see runs to their end, also one that was answered just now; one that still waits is left."""
        while True:
            waited = list(self._patient)
            await _cut([self._patient.pop(run) for run in waited])
            for run_id in waited:
                report = report_of(self._ground.store, self._session, run_id)
                if report is not None and is_left(report.status):
                    self._shown[run_id] = asyncio.ensure_future(self._show_elsewhere(run_id))
            going = [task for task in self._shown.values() if not task.done()]
            if not going:
                return
            await asyncio.wait(going)

    def _how_it_ended(self) -> int:
        """The exit code; a run that is open, and that this process may not go on with, is named."""
        report = report_of(self._ground.store, self._session) if self._ground.store.exists(self._session) else None
        if report is None:
            return 0
        if self._refused is not None and is_left(report.status):
            talk(f"semel: the run of session {self._session!r} is open; {command('resume', self._session)} goes on with it")
            return self._refused.exit
        return report.status.exit

    async def _send(self, line: str) -> None:
        """Give a line to whoever has the session; nobody else having it, to this process. Its key is made once."""
        key, turns = self._runtime.new_key(), Turns(self._ground)
        while True:
            busy: SessionBusy | None = None
            if self._box is not None:
                try:
                    run = await self._box.send(line, key=key, delivery="steer")
                except SessionBusy as error:
                    busy = error
                else:
                    return self._show(run.run_id, self._show_ours(run), waits=run.at_rest)
            args: Item = {"text": line, "key": key, "delivery": "steer"}
            answer = await ask_owner(self._ground, self._session, "send", args, leaving=tell_of_leaving)
            if answer is not None:
                return self._show(answer["run_id"], self._show_elsewhere(answer["run_id"]))
            if busy is None:
                raise need(self._lacking, "an agent is there, or it is said why not")
            turns.taken(busy)

    def _show(self, run_id: str, showing: "Coroutine[Any, Any, None]", *, waits: bool = False) -> None:
        """Show a run, unless it is shown already. `waits` says that nothing follows from the line for now."""
        if waits and run_id in self._patient:
            talk(f"semel: kept. The run still waits; {command('inbox')} says for what")
        if run_id in self._shown:
            showing.close()
        else:
            self._shown[run_id] = asyncio.ensure_future(showing)

    async def _show_ours(self, run: RunHandle[Any]) -> None:
        report, screen = None, Screen(self._options)
        try:
            async for event in run.events(after=run.before, live=True):
                screen.show(event)
            report = report_in(self._ground.store, await run.rest(), run.run_id)
        except SemelError as error:
            talk(f"semel: {with_state(str(error))}")
        self._tell_end(run.run_id, report)

    async def _show_elsewhere(self, run_id: str) -> None:
        """Show a run of another process; one that its process has left is gone on with here."""
        await self._follow(run_id)
        report = report_of(self._ground.store, self._session, run_id)
        if report is None or not is_left(report.status):
            self._tell_end(run_id, report)
            return
        talk("semel: nobody carries the run; this one goes on with it")
        try:
            run = await self._runtime.resume(self._session)
        except SessionBusy:
            await self._show_elsewhere(run_id)  # somebody else was quicker to take it up
            return
        except SemelError as error:
            self._refused = error
            talk(f"semel: {with_state(str(error))}")
            return
        if run is not None:
            await self._show_ours(run)

    async def _follow(self, run_id: str, waits_behind: int | None = None) -> None:
        screen = Screen(self._options)
        events = run_events(self._ground, self._logs, self._session, run_id, live=True, waits_behind=waits_behind)
        async with aclosing(events):
            async for event in events:
                if event.get("run_id", run_id) == run_id:
                    screen.show(event)

    def _tell_end(self, run_id: str, report: Report | None) -> None:
        if report is None or report.status.state == "completed" or is_left(report.status):
            return
        talk(f"semel: {ending_line(report.status)}")
        if report.status.state == "paused":
            self._patient[run_id] = asyncio.ensure_future(self._wait_for_answer(run_id, report.status.head_seq))

    async def _wait_for_answer(self, run_id: str, head: int) -> None:
        """Show how a run goes on that waited for somebody, wherever it does: here, where nobody else has gone on with it."""
        await self._follow(run_id, head)
        report = report_of(self._ground.store, self._session, run_id)
        del self._patient[run_id]
        if report is not None and is_left(report.status):
            self._shown[run_id] = asyncio.ensure_future(self._show_elsewhere(run_id))
        elif report is not None and report.status.state != "completed":
            talk(f"semel: {ending_line(report.status)}")

    def _is_ours(self, run_id: str) -> bool:
        """Whether this process carries the run, or nobody does any more."""
        held_here = self._session in self._runtime.resources().sessions
        return self._shown[run_id].done() or held_here or self._owner() is None


async def _cut(tasks: "Sequence[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


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
