"""Carrying runs from the command line: start, show what happens, be interruptible, report (H6: exit comes last)."""

import asyncio
import functools
import os
import secrets
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from semel import wiring
from semel.core.records import AgentRef
from semel.core.status import encode_status
from semel.engine.resume import Ground
from semel.errors import BadAgent, SemelError, StoreError
from semel.faces.agent import Agent
from semel.faces.agentref import find_agent, load_agent, named, with_model
from semel.faces.api import Runtime
from semel.faces.cli.options import RunOptions
from semel.faces.cli.output import show_cursor, talk, tell_faults
from semel.faces.cli.progress import Watch
from semel.faces.cli.remedies import with_state
from semel.faces.crew import AgentFinder
from semel.faces.own_loop import deaf_line, run_in_own_loop
from semel.faces.report import Report, report_in, report_of
from semel.faces.run import RunHandle
from semel.faces.signals import Stop
from semel.faces.views import view_of
from semel.settings import read_settings

DRAIN_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Errand:
    """Something that carries a run. `session` is for messages; None where it has no name yet."""

    session: str | None
    begin: Callable[[Runtime], Awaitable[RunHandle[Any] | None]]


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What became of an errand: the report of its run, or the error that kept it from going on."""

    session: str | None
    report: Report | None = None
    error: SemelError | None = None


@dataclass(frozen=True, kw_only=True)
class Round:
    """All errands of one command, and the signal that cut them short, if one did."""

    carried: tuple[Carried, ...]
    stopped_by: int | None = None


def ground_to_look_at(state: str | None) -> Ground:
    """The ground of a verb that changes nothing, so that it may be a copy; then it says so."""
    tell_of_copy(read_settings(state).state)
    return ground_of(state)


def tell_of_copy(root: Path) -> None:
    """Say that a directory is a backup, or what one that did not end has left, if it is."""
    copy = wiring.copy_at(root)
    if copy is not None:
        talk(copy)


def ground_of(state: str | None) -> Ground:
    """The embedded store; the event loop is ours, so syncs are inline (design 6)."""
    return wiring.ground_of(read_settings(state, inline_sync=True))


def carry(options: RunOptions, ground: Ground, errands: Sequence[Errand], *, carries: bool = True) -> Round:
    """Carry all errands to their rest, side by side. Without `carries`, what they ask for is recorded and no open run goes on."""
    if not errands:
        return Round(carried=())
    if options.model is not None:
        _warn_of_frozen_models(ground, errands)
    with redirect_stdout(sys.stderr):  # what a Python tool prints is talk
        carried = run_in_own_loop(_carry(options, ground, errands, carries=carries))
    tell_faults(ground.store)
    return carried


def _warn_of_frozen_models(ground: Ground, errands: Sequence[Errand]) -> None:
    """A run asks one model from its start to its end: `--model` does not reach one that is open."""
    for session in [errand.session for errand in errands if errand.session is not None and ground.store.exists(errand.session)]:
        with suppress(SemelError):  # what cannot be read is refused when it is carried
            view = view_of(ground.store, session)
            if view.state.run is not None and view.owner is None:
                model = view.state.run.config.bundle.model
                talk(f"semel: the open run of session {session!r} keeps its frozen model {model}; --model acts at the next run")


def finder(options: RunOptions, ground: Ground) -> AgentFinder:
    """How the agent of a log is found: `--agent` if it is given, else where the log says, if that log was made here."""

    @functools.cache  # a run is looked at before it is opened, and then again
    def find(ref: AgentRef, session: str) -> Agent[Any]:
        if options.agent is None and not ground.store.made_here(session):
            raise BadAgent(
                f"the log of session {session!r} was not made here (its file is open to others), so what it names is not loaded; "
                f"pass `--agent FILE`"
            )
        found = find_agent(ref) if options.agent is None else named(load_agent(options.agent), ref)
        if ref.digest is not None and found.digest is not None and found.digest != ref.digest:
            talk(f"semel: {found.source} is not what it was when the run started; new texts act from the next run on")
        return with_model(found, options.model)

    return find


async def _carry(options: RunOptions, ground: Ground, errands: Sequence[Errand], *, carries: bool) -> Round:
    stop = told_stop()
    stop.listen()
    recover: Literal["manual", "never"] = "manual" if carries else "never"
    find = finder(options, ground)
    runtime = Runtime(ground=ground, recover=recover, inline_sync=True, drain_seconds=DRAIN_SECONDS, find_agent=find)
    async with Watch(options, ground.clock) as watch:
        async with runtime:
            tasks = [asyncio.ensure_future(_one(runtime, ground, options, errand, watch)) for errand in errands]
            everything: asyncio.Future[Any] = asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.wait({everything, stop.asked}, return_when=asyncio.FIRST_COMPLETED)
            if stop.asked.done():
                for task in tasks:
                    if task not in watch.begun:
                        task.cancel()
        tell_of_deaf(runtime)
        carried = await everything
    found = [_settled(errand, result) for errand, result in zip(errands, carried, strict=True)]
    return Round(carried=tuple(found), stopped_by=stop.number)


def tell_of_deaf(runtime: Runtime) -> None:
    """Name what did not end when the runtime was left; the process ends all the same."""
    deaf = deaf_line(runtime.stop_outcome)
    if deaf is not None:
        talk(f"semel: {deaf}")


def _settled(errand: Errand, result: Carried | BaseException) -> Carried:
    if isinstance(result, Carried):
        return result
    if isinstance(result, SemelError):
        return Carried(session=errand.session, error=result)
    if isinstance(result, asyncio.CancelledError):
        return Carried(session=errand.session)
    raise result


async def _one(runtime: Runtime, ground: Ground, options: RunOptions, errand: Errand, watch: Watch) -> Carried:
    run = await errand.begin(runtime)
    if run is None:
        return Carried(session=errand.session, report=reported(ground, options, errand.session, None))
    if options.status is not None:
        write_status(options.status, ground.store.read_status(run.session) or b"")
    with suppress(asyncio.CancelledError):  # cut off with this process, when its time to stop was over; the log is safe
        await watch.see(run)
    if not run.at_rest:
        return Carried(session=run.session, report=reported(ground, options, run.session, run.run_id))
    # It need not be looked up again, which may be refused: whoever is told that a run failed tries it once more.
    report = report_in(ground.store, await run.rest(), run.run_id)
    return Carried(session=run.session, report=_written(options, report))


def reported(ground: Ground, options: RunOptions, session: str | None, run_id: str | None) -> Report | None:
    """How a run stands, by default the newest; written to where `--status` says, too."""
    return _written(options, None if session is None else report_of(ground.store, session, run_id))


def _written(options: RunOptions, report: Report | None) -> Report | None:
    """The report, once it stands where `--status` says."""
    if report is not None and options.status is not None:
        write_status(options.status, encode_status(report.status))
    return report


def write_status(path: Path, document: bytes) -> None:
    """Put the status document there, whole or not at all. Raises StoreError."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")  # no name that another user could have laid out
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, not a path
                file.write(document)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"the status could not be written to {path}: {error.strerror}. The run itself is safe") from error


def told_stop() -> Stop:
    """The wish of a signal, of which a person is told what becomes of it."""
    return Stop(told=_told, leaves=_leaves)


def _told(_number: int) -> None:
    talk(f"semel: stopping; calls under way get {DRAIN_SECONDS:.0f} s to come back. Once more leaves at once")


def _leaves(_number: int) -> None:
    talk(with_state("semel: left at once. The log is safe; `semel resume` goes on"))
    show_cursor()
