"""Delivering a message: through whoever holds the session, or from here; and waiting for what it comes to."""

import sys
from typing import Any

import click

from semel.core.due import is_idle
from semel.core.records import Delivery
from semel.core.status import is_left
from semel.core.values import Frozen
from semel.core.waiting import WaitKind
from semel.engine.resume import Ground
from semel.errors import SessionBusy
from semel.faces.agent import Agent
from semel.faces.agentref import default_agent, find_agent, load_agent, with_model
from semel.faces.api import Runtime
from semel.faces.cli.carry import Carried, Errand, Round, carry, ground_of
from semel.faces.cli.endings import finish
from semel.faces.cli.options import RunOptions
from semel.faces.cli.output import talk
from semel.faces.cli.owner import Turns, ask, goes_on, watch_run
from semel.faces.files import Attached, Files, attached
from semel.faces.report import report_of
from semel.faces.run import RunHandle
from semel.faces.views import known_run, last_agent, view_of
from semel.ports.control import Item

_EXIT_WAITS = 4


class Message(Frozen, frozen=True, kw_only=True):
    """A message to a session, or to a fresh one. Its key is made once, whoever is asked, so that nothing happens twice."""

    text: str
    key: str
    session: str | None = None
    delivery: Delivery | None = None
    beside: Attached = Attached()


def text_of(prompt: str) -> str:
    """The text of an argument; `-` reads it from stdin. Raises BadParameter for one that is empty."""
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise click.BadParameter("the message is empty", param_hint="PROMPT")
    return text


def deliver(
    prompt: str,
    session: str | None,
    key: str | None,
    options: RunOptions,
    delivery: Delivery | None = None,
    *,
    files: Files = (),
) -> int:
    """Send a message, wait for the run that takes it up, and print what that comes to.

    Files do not go through another process that holds the session: then the session is busy.
    """
    text, ground, beside = text_of(prompt), ground_of(options.state), attached(files)
    own = ground.ids.fresh() if key is None else key
    message = Message(text=text, key=own, session=session, delivery=delivery, beside=beside)
    again = key is not None
    turns = Turns(ground)
    while True:
        answer = None if session is None or beside.parts else _ask(message, session, options, ground)
        if session is not None and answer is not None:
            code = watch_run(ground, session, answer["run_id"], options)
            if code is not None:
                return code
            again = True  # it was taken, and whoever took it carries it no more
        try:
            return _deliver_here(message, options, ground, known=again)
        except SessionBusy as error:
            if session is None or beside.parts or _waits_itself(ground, session):
                raise
            turns.taken(error)
        again = True


def resume_one(session: str, options: RunOptions, ground: Ground, *, go_on: bool = False) -> int:
    """Watch the run that another process carries, or carry it here."""
    turns = Turns(ground)
    while True:
        answer = ask(ground, session, "resume", {}, options)
        if answer is not None and answer["run_id"] is not None:
            code = watch_run(ground, session, answer["run_id"], options)
            if code is not None:
                return code
            continue  # whoever carried it is gone
        try:
            return finish(carry(options, ground, [resumption(session, go_on=go_on)]), options)
        except SessionBusy as error:
            turns.taken(error)


def resumption(session: str, *, go_on: bool = False) -> Errand:
    """Carry on what is open in a session, or else start the next message of its queue; with `go_on` behind an unknown call."""

    async def begin(runtime: Runtime) -> RunHandle[Any] | None:
        return await runtime.resume(session, go_on=go_on)

    return Errand(session=session, begin=begin)


def _ask(message: Message, session: str, options: RunOptions, ground: Ground) -> Item | None:
    """Have whoever holds the session take the message; None where nobody does."""
    args = {"text": message.text, "key": message.key, "delivery": message.delivery}
    return ask(ground, session, "send", args, options)


def _waits_itself(ground: Ground, session: str) -> bool:
    """Whether a session is refused because of its own open run, which waits for somebody, and not because others hold it."""
    exists = ground.store.exists(session)
    return exists and ground.store.owner(session) is None and view_of(ground.store, session).state.run is not None


def _deliver_here(message: Message, options: RunOptions, ground: Ground, *, known: bool) -> int:
    """Send from this process; `known` says that the key may have been used already."""
    session = message.session
    if known and session is not None and ground.store.exists(session):
        parts = message.beside.parts
        run_id = known_run(ground.store, session, message.key, message.text, delivery=message.delivery, parts=parts)
        report = None if run_id is None else report_of(ground.store, session, run_id)
        if report is not None and (is_left(report.status) or report.status.reason == WaitKind.AUTH_REQUIRED):
            return finish(carry(options, ground, [resumption(session)]), options)
        if report is not None:
            return finish(Round(carried=(Carried(session=session, report=report),)), options)
        if run_id is not None and _is_stranded(ground, session):
            cut_short = carry(options, ground, [resumption(session)])  # it stands before the message that waits in the queue
            before = cut_short.carried[0].report
            waits = before is not None and before.status.state == "paused"
            if cut_short.carried[0].error is not None or cut_short.stopped_by is not None or waits:
                return finish(cut_short, options)
            return _deliver_here(message, options, ground, known=True)
    return _send_new(message, options, ground)


def _is_stranded(ground: Ground, session: str) -> bool:
    """Whether a run is open that nobody carries, though it waits for nobody."""
    state = view_of(ground.store, session).state
    return state.run is not None and not is_idle(state) and ground.store.owner(session) is None


def _send_new(message: Message, options: RunOptions, ground: Ground) -> int:
    session = message.session
    agent = agent_for(session, options, ground)

    async def begin(runtime: Runtime) -> RunHandle[Any]:
        if session is not None and runtime.check_open_run(session) and (options.verbose or sys.stderr.isatty()):
            talk("the run that a dead process left open is carried to its end first")
        box = runtime.session(session, agent=agent)
        return await box.send(message.text, key=message.key, delivery=message.delivery, files=message.beside.files)

    done = carry(options, ground, [Errand(session=session, begin=begin)])
    (carried,) = done.carried
    if carried.report is None and carried.error is None and carried.session is not None and done.stopped_by is None:
        return _queued(message, ground, carried.session)
    return finish(done, options)


def _queued(message: Message, ground: Ground, session: str) -> int:
    """The message is durable, and something stands before its run."""
    following = goes_on(ground, session)
    then = "" if following is None else f": {following}"
    talk(f"semel: the message waits in the queue of session {session!r} under key {message.key}{then}")
    return _EXIT_WAITS


def agent_for(session: str | None, options: RunOptions, ground: Ground) -> Agent[Any]:
    """The agent of a new message: the one given, else the one that the session had last, else that of this directory."""
    if options.agent is not None:
        return with_model(load_agent(options.agent), options.model)
    had = last_agent(ground.store, session) if session is not None and ground.store.exists(session) else None
    return default_agent(options.model) if had is None else with_model(find_agent(had), options.model)
