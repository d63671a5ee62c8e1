"""How a command that carried runs ends: what it prints of each, and the exit code."""

import sys

from semel.core.status import Status, is_left
from semel.core.targets import cache_words
from semel.core.waiting import WaitKind
from semel.errors import SemelError
from semel.faces.cli.carry import Carried, Round
from semel.faces.cli.lines import duration, usage_text
from semel.faces.cli.options import RunOptions
from semel.faces.cli.output import data, json_line, talk
from semel.faces.cli.remedies import VERDICTS, command, resolve_commands, with_state
from semel.faces.report import Report

_EXIT_PERSON = 3
_NOT_FOUND = (" answered 404 ", "model identifier is invalid")
_CHECK_NAME = "Check the name of the model and its URL; `semel models` shows how they are written. "
_REMEDIES = {
    "quota_exhausted": "Add credit at the provider, or wait for its next period. ",
    "rate_limit": "Wait, or raise the limit at the provider. ",
    "permission": "Ask the provider for access, or take another model. ",
    "context_exceeded": "The conversation is too long for this model: start a new session, or take another model. ",
    "request_too_large": "The conversation is too large for this provider: start a new session. ",
    "invalid_request": (
        "Look at what the message shows, such as a file that this model does not take. "
        "If it comes again in this session, start a new one with `semel run`. "
    ),
    "opaque_state_rejected": "Take another model, or start a new session. ",
}
WAITING = {
    "approval": "a call waits for an approval",
    "tool_held": "a held call waits for its result",
}


def finish(done: Round, options: RunOptions) -> int:
    """Print what every run came to; the exit code is 3 if one of them needs a person, else the highest.

    Raises the error of a single run that could not be carried.
    """
    if len(done.carried) == 1 and done.carried[0].error is not None:
        raise done.carried[0].error
    codes = [_ending(carried, done.stopped_by, options) for carried in done.carried]
    return _EXIT_PERSON if _EXIT_PERSON in codes else max(codes)


def _ending(carried: Carried, stopped_by: int | None, options: RunOptions) -> int:
    report = carried.report
    if carried.error is not None:
        return _failed(carried, carried.error, options)
    if report is not None and options.as_json:
        json_line(report.as_json())
    if report is not None and not is_left(report.status):
        _told(report, options)
        return report.status.exit
    if stopped_by is not None:
        where = [] if carried.session is None else [carried.session]
        talk(f"semel: stopped. The run is safe in the log; {command('resume', *where)} goes on with it")
        return 128 + stopped_by
    if report is None:
        talk(f"session {carried.session} has no run")
    return 0


def _failed(carried: Carried, error: SemelError, options: RunOptions) -> int:
    if options.as_json:
        json_line({"session": carried.session, "error": {"code": error.code, "message": str(error), "exit": error.exit}})
    talk(f"semel: {with_state(str(error))}")
    return error.exit


def _told(report: Report, options: RunOptions) -> None:
    """The answer to stdout, and one line about the end to stderr where it is not the good one or somebody watches."""
    if report.output is not None and not options.as_json and not options.stream:
        data(report.output if report.output.endswith("\n") else report.output + "\n")
    status = report.status
    if status.state != "completed":
        talk(f"semel: {ending_line(status)}")
    elif options.verbose or sys.stderr.isatty():
        talk(ending_line(status))


def ending_line(status: Status) -> str:
    """How a run ended, and what to do about it."""
    what = f"run {status.run_id[:8]} of session {status.session!r}"
    match status.state:
        case "completed":
            took = duration((status.finished_at_ms or status.updated_at_ms) - status.started_at_ms)
            return f"{what} completed: {usage_text(status.usage)}, {took}{_saved(status)}"
        case "interrupted":
            calls = [call for call in status.unknown_calls if call.run_id == status.run_id]
            names = ", ".join(f"{call.tool} ({call.call_key[:8]})" for call in calls)
            if not calls:
                return f"{what} was interrupted; its calls have their verdicts, and {_goes_on(status)}"
            then = ", ".join(f"`{one}`" for one in resolve_commands(call.call_key for call in status.unknown_calls))
            return f"{what} is interrupted: the outcome of {names} is unknown. Find out what happened, then {then}, {VERDICTS}"
        case "failed":
            why = f"{status.error.code}: {status.error.message}" if status.error else status.reason or "no reason"
            return with_state(f"{what} failed: {why.rstrip('.')}. {_remedy(status)}")
        case "paused":
            if status.reason == WaitKind.AUTH_REQUIRED:
                return f"{what} is paused: its model's provider refused the key{_refused(status)}"
            return f"{what} is paused: {WAITING.get(str(status.reason), str(status.reason))}; {command('inbox')} says what to do"
        case _:
            return f"{what} is {status.state}"


def _saved(status: Status) -> str:
    """What the provider's cache served behind a resume, or what kept it from that."""
    told = status.cache if isinstance(status.cache, tuple) else ()
    return "".join(f"; {cache_words(proof)}" for proof in told[-1:] if proof.read is not None or proof.broken)


def _refused(status: Status) -> str:
    """What the provider said, which names where the key came from, and what to do then."""
    told = f": {status.error.message.rstrip('.')}" if status.error is not None else ""
    return f"{told}. Give it the right one, then {command('resume', status.session)} reads it anew and goes on"


def _goes_on(status: Status) -> str:
    if isinstance(status.continued_as, str):
        return f"run {status.continued_as[:8]} went on"
    return f"{command('send', '--session', status.session, '...')} goes on"


def _remedy(status: Status) -> str:
    error = status.error
    first = ""
    if error is not None and error.class_ == "model":
        missing = error.provider == "model_not_found" or any(words in error.message for words in _NOT_FOUND)
        first = _CHECK_NAME if missing else _REMEDIES.get(error.code, "")
    return f"{first}{'Then ' if first else ''}`semel send` or `semel run` starts another"
