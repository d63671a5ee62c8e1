"""Verbs on a session that another process may run: ask whoever holds it, else do it here under the lease, and watch runs."""

import asyncio
import time
from contextlib import aclosing
from typing import Any

from semel import wiring
from semel.core.due import is_idle
from semel.core.messages import due_message
from semel.core.status import is_left
from semel.core.values import Frozen
from semel.core.waiting import WaitKind, pause_of
from semel.engine.resume import Ground
from semel.errors import BadSettings, SessionBusy
from semel.faces.answering import Desk
from semel.faces.api import Runtime
from semel.faces.cli.carry import Carried, Errand, Round, carry, finder, reported
from semel.faces.cli.endings import finish
from semel.faces.cli.options import RunOptions
from semel.faces.cli.output import json_line, talk
from semel.faces.cli.progress import Screen
from semel.faces.cli.remedies import plain_command
from semel.faces.owner import ask_owner, run_events
from semel.faces.report import Report
from semel.faces.run import RunHandle
from semel.faces.views import view_of
from semel.ports.control import Item
from semel.settings import read_settings

BUSY_SECONDS = 10.0
"""How long a command that finds a session free and then taken looks again."""
_PAUSE_SECONDS = 0.05
_EXIT_KEY = 130
_OPEN = ("running", "paused")


class Told(Frozen, frozen=True, kw_only=True):
    """What was asked is durable. `owner` took it, or this process did: then `done` says what it carried meanwhile."""

    run_id: str | None
    owner: str | None
    done: Round | None

    @property
    def ended(self) -> Report | None:
        """How the run that was concerned ended here; None where it is open, was not carried here, or there was none."""
        report = None if self.done is None or self.run_id is None else self.done.carried[0].report
        return None if report is None or report.status.state in _OPEN else report


class Turns:
    """Looking again, for a while, at a session that others take and give back."""

    def __init__(self, ground: Ground) -> None:
        """Time runs from now on."""
        self._clock, self._until = ground.clock, ground.clock.monotonic() + BUSY_SECONDS

    def taken(self, error: SessionBusy) -> None:
        """Somebody took it first: wait a moment. Raises the error where that goes on for too long."""
        if self._clock.monotonic() >= self._until:
            raise error
        time.sleep(_PAUSE_SECONDS)


def ask(ground: Ground, session: str, verb: str, args: Item, options: RunOptions | None = None) -> Item | None:
    """The answer of whoever holds the session; None if nobody does. Raises what the request was refused with.

    Raises BadSettings for an agent or a model in `options`: a process that runs a session does so with its own.
    """
    contact = ground.control.contact(session) if ground.control is not None else None
    if contact is None:
        return None
    if options is not None and (options.agent or options.model):
        raise BadSettings(
            f"session {session!r} is run by {contact.owner}, with the agent that it has; leave out --agent and --model, "
            f"or wait until it is done"
        )
    answer = asyncio.run(ask_owner(ground, session, verb, args, leaving=tell_of_leaving))
    return None if answer is None else {**answer, "owner": contact.owner}


def tell_of_leaving(owner: str) -> None:
    """Say why an answer takes its time."""
    talk(f"semel: {owner} is stopping; this is done when it has given the session back")


def tell(ground: Ground, options: RunOptions, session: str, verb: str, args: Item, *, carries: bool = False) -> Told:
    """Have something done in a session by whoever holds it, else by this process, which with `carries` goes on with the run.

    Raises what the verb raises, and SessionBusy where somebody holds the session and does not answer.
    """
    turns, find = Turns(ground), finder(options, ground)

    concerned: list[str | None] = []

    async def begin(runtime: Runtime) -> RunHandle[Any] | None:
        run = await Desk(runtime, ground.store, find).perform(session, verb, args)
        concerned.append(None if run is None else run.run_id)
        return run

    while True:
        answer = ask(ground, session, verb, args)
        if answer is not None:
            return Told(run_id=answer["run_id"], owner=answer["owner"], done=None)
        done = carry(options, ground, [Errand(session=session, begin=begin)], carries=carries)
        (here,) = done.carried
        if isinstance(here.error, SessionBusy):
            turns.taken(here.error)
        elif here.error is not None:
            raise here.error
        else:
            return Told(run_id=concerned[-1] if concerned else None, owner=None, done=done)


def watch_run(ground: Ground, session: str, run_id: str, options: RunOptions) -> int | None:
    """Show a run that another process carries, and how it ended; None where nobody carries it any more and it is not over."""
    try:
        asyncio.run(_watch(ground, session, run_id, options))
    except KeyboardInterrupt:
        talk("semel: not watched any more. The run goes on in the process that carries it")
        return _EXIT_KEY
    report = reported(ground, options, session, run_id)
    if report is None or is_left(report.status):
        return None
    return finish(Round(carried=(Carried(session=session, report=report),)), options)


async def _watch(ground: Ground, session: str, run_id: str, options: RunOptions) -> None:
    logs, screen = wiring.store_of(read_settings(options.state)), Screen(options)
    async with aclosing(run_events(ground, logs, session, run_id, live=options.stream)) as events:
        async for event in events:
            if event.get("run_id", run_id) == run_id:
                screen.show(event)


class Following(Frozen, frozen=True, kw_only=True):
    """Why a session rests though something waits in it, the next command, and what that does."""

    why: str
    command: str
    does: str = "goes on"

    def __str__(self) -> str:
        """As a sentence."""
        return f"{self.why}; `{self.command}` {self.does}"


def acknowledge(told: Told, ground: Ground, options: RunOptions, session: str, said: str, **facts: str | None) -> int:
    """Say that what was asked is durable, who took it, and what goes on with the session where nobody does."""
    following = None if told.owner is not None else goes_on(ground, session)
    if options.as_json:
        owner = {"owner": told.owner, "next": None if following is None else following.command}
        json_line({"session": session, "run_id": told.run_id, **facts, **owner})
        return 0
    taken = f"; {told.owner} took it" if told.owner is not None else ""
    talk(f"{said}{taken}")
    if following is not None:
        talk(str(following))
    return 0


def goes_on(ground: Ground, session: str) -> Following | None:
    """What goes on with a session at rest; None where nothing waits in it, or somebody has it."""
    state = view_of(ground.store, session).state
    if ground.store.owner(session) is not None:
        return None
    resume, inbox = plain_command("resume", session), plain_command("inbox")
    if state.run is not None and pause_of(state) is WaitKind.AUTH_REQUIRED:
        return Following(why="its run waits for another key", command=resume)
    if state.run is not None and is_idle(state):
        return Following(why="its run waits for somebody", command=inbox, does="says for what")
    if state.run is not None:
        return Following(why="nobody carries the open run", command=resume, does="goes on, if no service does")
    if due_message(state) is not None:
        return Following(why="nobody has begun with the queue", command=resume)
    if state.queue:
        return Following(why="the queue stands behind a call whose outcome is unknown", command=inbox, does="says which")
    return None
