"""What became of a call: the one classifier (design 6 and 14, B4-B7, F2, F14, F15, T2, T4, T10, T17).

`classify_exception` turns what a tool raised into one of three facts; `settle` turns a fact into what is recorded, whether
the run goes on, and what the model is told. Every sentence that semel itself says about a call stands here.
`docs/outcomes.md` is generated from these functions.
"""

import enum

import msgspec

from semel.core.hook_notes import HookNote
from semel.core.uncertainty import LostReason, links, uncertainty
from semel.core.values import JSON, Effect, Frozen, Part, clean_json, clean_text, control_free, finite, printable
from semel.errors import CallNotSent, OutcomeUnknown, ToolFailed

MESSAGE_CHARS_MAX = 2000  # of the words of an exception or a refusal; the fixed sentences around them are short
MEMBERS_SHOWN_MAX = 3  # of an exception group


class Outcome(enum.StrEnum):
    """How a call ended, as `tool_result` records it; replay acts on this alone (CON11)."""

    COMPLETED = "completed"
    UNKNOWN = "unknown"
    INTERRUPTED = "interrupted"
    MAX_STEPS = "max_steps"


class RefusalReason(enum.StrEnum):
    """Why a call was planned as not dispatchable."""

    TRUNCATED_OUTPUT = "truncated_output"
    ANSWER_DECLINED = "answer_declined"
    UNKNOWN_TOOL = "unknown_tool"
    ARGUMENTS_INVALID = "arguments_invalid"
    SCHEMA_INVALID = "schema_invalid"
    OVERSIZED = "oversized"
    POLICY_BLOCKED = "policy_blocked"
    HOOK_DENIED = "hook_denied"
    PRE_TOOL_UNAVAILABLE = "pre_tool_unavailable"
    DENIED = "denied"
    APPROVAL_EXPIRED = "approval_expired"
    RUN_CLOSED = "run_closed"
    NEVER_DISPATCHED = "never_dispatched"


class HeldReason(enum.StrEnum):
    """Why a held call was closed. For people; replay tells it by the outcome (R39)."""

    CANCELLED = "provider_held_cancelled"
    STOPPED = "provider_held_stopped"
    INTERRUPTED = "provider_held_interrupted"


class Refusal(Frozen, frozen=True, kw_only=True):
    """A call that is not run, and what the model is told about it: bounded, nonblank, control-free (T1, T4, T10)."""

    reason: RefusalReason
    message: str


class Completed(Frozen, frozen=True, kw_only=True, tag="completed"):
    """The call ended and its outcome is known. `terminate` is the tool's wish to end the run after this batch (A6)."""

    text: str
    is_error: bool = False
    terminate: bool = False
    parts: tuple[Part, ...] = ()


class NotSent(Frozen, frozen=True, kw_only=True, tag="not_sent"):
    """Nothing was handed over, so nothing can have happened (B6)."""

    text: str


class SentButOutcomeUnknown(Frozen, frozen=True, kw_only=True, tag="sent_but_outcome_unknown"):
    """The call left and its outcome is not known (B7). `text` says why, without a full stop."""

    text: str
    reason: LostReason


class DidNotHappen(Frozen, frozen=True, kw_only=True, tag="did_not_happen"):
    """The outside was asked and answered: never, and nothing under this key can still take effect."""


class NeverSent(Frozen, frozen=True, kw_only=True, tag="never_sent"):
    """Its batch is closed before this call was sent; `outcome` is `interrupted`, or `max_steps` at that limit (P25, P27)."""

    outcome: Outcome = Outcome.INTERRUPTED


class HeldClosed(Frozen, frozen=True, kw_only=True, tag="held_closed"):
    """The run ends while the provider holds the call. Never unknown: the provider has said that it has it (R38)."""

    reason: HeldReason


Dispatched = Completed | NotSent | SentButOutcomeUnknown  # what one dispatch returns (B4)
Happening = Dispatched | DidNotHappen | NeverSent | HeldClosed


class Settlement(Frozen, frozen=True, kw_only=True):
    """What is recorded of a call, and whether its run must stop for a person.

    The model reads `text`, but where `stops_run` no model of this run does (P3). `reason` is for people (R15). `hooks` tell what
    post-tool hooks did to it; the record that brings it keeps them.
    """

    outcome: Outcome
    is_error: bool
    text: str
    reason: str | None = None
    stops_run: bool = False
    terminate: bool = False
    parts: tuple[Part, ...] = ()
    hooks: tuple[HookNote, ...] = ()


_LOST = {
    LostReason.CANCELLED: "the call was cancelled before it answered",
    LostReason.INTERRUPTED: "the call was interrupted before it answered",
    LostReason.TIMEOUT: "the call did not answer in time",
    LostReason.CONNECTION_LOST: "the connection failed before a whole answer had come",
    LostReason.SERVER_ERROR: "the server failed while it had the request",
    LostReason.PROCESS_DIED: "the process of the call died before it answered",
    LostReason.NOT_KNOWN: "the tool cannot tell what became of the call",
    LostReason.CRASHED: "the runtime ended before a result was recorded",
}
_REFUSED = {
    RefusalReason.TRUNCATED_OUTPUT: "Not run: your answer hit its output limit, so the call may be incomplete. Make it shorter.",
    RefusalReason.ANSWER_DECLINED: "Not run: the answer was broken off by its model or provider, which declined to give it.",
    RefusalReason.UNKNOWN_TOOL: "Not run: no tool of that name is offered.",
    RefusalReason.ARGUMENTS_INVALID: "Not run: the arguments are not one strict JSON object.",
    RefusalReason.SCHEMA_INVALID: "Not run: the arguments do not fit the tool's schema.",
    RefusalReason.OVERSIZED: "Not run: the arguments are too large.",
    RefusalReason.POLICY_BLOCKED: "Not run: the rules of this agent do not allow it.",
    RefusalReason.HOOK_DENIED: "Not run: a check of this agent does not allow it.",
    RefusalReason.PRE_TOOL_UNAVAILABLE: "Not run: a check that stands before every call failed. Nothing happened.",
    RefusalReason.DENIED: "Not run: a person declined this call.",
    RefusalReason.APPROVAL_EXPIRED: "Not run: nobody approved this call in time.",
    RefusalReason.RUN_CLOSED: "Not run: the run was ended before the call was sent. Nothing happened.",
    RefusalReason.NEVER_DISPATCHED: "Not run: the runtime ended before the call was sent. Nothing happened.",
}
_NEVER_SENT = {
    Outcome.INTERRUPTED: "Not run: the run was interrupted before the call was sent. Nothing happened.",
    Outcome.MAX_STEPS: "Not run: the run reached its limit before the call was sent. Nothing happened.",
}
_HELD_CLOSED = {
    HeldReason.CANCELLED: "the run was cancelled",
    HeldReason.STOPPED: "the run was stopped",
    HeldReason.INTERRUPTED: "another call of the run was interrupted",
}
_SILENT = "the tool failed and said nothing"
_VERIFY = "It may have taken effect. Verify before doing it again."
_STILL_RUNNING = "the outside says that it never took effect, but it was still running when that was asked"
_DID_NOT_HAPPEN = "Did not happen: no result was recorded, and the outside confirms that the call never took effect."


def settle(effect: Effect, happening: Happening, *, after_crash: bool) -> Settlement:
    """What is recorded, whether the run goes on, and what the model is told.

    `after_crash` is true for an intent that a dead process left without an outcome. An `idempotent` or `read` call is run
    again first; it is settled by this only when that no longer happens.
    """
    match happening:
        case Completed(text=text, is_error=is_error, terminate=terminate, parts=parts):
            said = _shown(text) if is_error else text
            return Settlement(outcome=Outcome.COMPLETED, is_error=is_error, text=said, terminate=terminate, parts=parts)
        case NotSent(text=text):
            return _error(Outcome.COMPLETED, f"Not run: {text}", "not_sent")
        case DidNotHappen():
            return _error(Outcome.COMPLETED, _DID_NOT_HAPPEN, "did_not_happen")
        case NeverSent(outcome=outcome):
            return _error(outcome, _NEVER_SENT[outcome], "never_sent")
        case HeldClosed(reason=why):
            closed = Outcome.MAX_STEPS if why is HeldReason.STOPPED else Outcome.INTERRUPTED
            return _error(closed, f"No result: {_HELD_CLOSED[why]} while the call was being worked on. {_VERIFY}", why)
        case SentButOutcomeUnknown(text=text, reason=reason):
            return _settle_unknown(effect, text, reason, after_crash=after_crash)


def _settle_unknown(effect: Effect, text: str, reason: LostReason, *, after_crash: bool) -> Settlement:
    if effect is Effect.ONCE:
        return _error(Outcome.UNKNOWN, f"Outcome unknown: {text}. {_VERIFY}", reason, stops_run=True)
    if after_crash:
        return _error(Outcome.INTERRUPTED, f"Interrupted: {text}. It may have run.", reason)
    advice = "Nothing was changed by it." if effect is Effect.READ else _VERIFY
    return _error(Outcome.COMPLETED, f"No result: {text}. {advice}", reason)


def _shown(text: str) -> str:
    """An error as the model may see it: it says something, and nothing in it but line breaks and tabs is a control (T10)."""
    shown = control_free(text)
    return shown if shown.strip() else _SILENT


def _error(outcome: Outcome, text: str, reason: str, *, stops_run: bool = False) -> Settlement:
    return Settlement(outcome=outcome, is_error=True, text=_shown(text), reason=str(reason), stops_run=stops_run)


def classify_exception(exc: BaseException) -> Dispatched:
    """What became of a call whose tool raised `exc`. ToolFailed and CallNotSent are taken at their word (F14, F15)."""
    if isinstance(exc, CallNotSent):
        return NotSent(text=_words(exc) or describe(exc))
    for link in links(exc):
        reason = uncertainty(link)
        if reason is not None:
            return lost(reason, _account(exc, link))
    return Completed(text=_failure(exc), is_error=True)


def lost(reason: LostReason, detail: str = "") -> SentButOutcomeUnknown:
    """An unknown outcome in the fixed words of its reason; `detail` says more, such as how long was waited."""
    more = _bounded(detail)
    return SentButOutcomeUnknown(text=f"{_LOST[reason]} ({more})" if more else _LOST[reason], reason=reason)


def doubted(unknown: SentButOutcomeUnknown) -> SentButOutcomeUnknown:
    """What stays of a call of which the outside says that it never happened, while something of it still runs and may do it."""
    return SentButOutcomeUnknown(text=f"{unknown.text}; {_STILL_RUNNING}", reason=unknown.reason)


def refuse(reason: RefusalReason, detail: str = "") -> Refusal:
    """A refusal in the fixed words of its reason; `detail` tells the model what to change."""
    more = _bounded(detail)
    return Refusal(reason=reason, message=f"{_REFUSED[reason]} {more}" if more else _REFUSED[reason])


def completed(value: JSON, *, terminate: bool = False) -> Completed:
    """The outcome of a call that returned `value`; one that JSON cannot carry is an error of a call that did run (T19)."""
    try:
        return Completed(text=result_text(value), terminate=terminate)
    except ToolFailed as failure:
        return Completed(text=_failure(failure), is_error=True)


def result_text(value: JSON) -> str:
    """The text that the model reads for a returned value: text as it is, None as nothing, all else as JSON.

    Raises ToolFailed, in words that say that the tool did run, for NaN, infinity and what is not JSON.
    """
    if isinstance(value, str):
        return clean_text(value)
    if value is None:
        return ""
    try:
        text = msgspec.json.encode(clean_json(value)).decode() if finite(value) else None
    except (ValueError, TypeError, OverflowError, RecursionError, AttributeError, msgspec.MsgspecError) as error:
        raise ToolFailed(f"the tool ran, but its result cannot be shown: {describe(error)}") from None
    if text is None:
        raise ToolFailed("the tool ran, but its result cannot be shown: it holds NaN or infinity")
    return text


def describe(exc: BaseException) -> str:
    """An exception as one bounded line: its type and its words; for a group, its first members (B07, T4)."""
    leaves = _leaves(exc)
    shown = "; ".join(_line(leaf) for leaf in leaves[:MEMBERS_SHOWN_MAX])
    more = len(leaves) - MEMBERS_SHOWN_MAX
    return _bounded(f"{shown}; and {more} more" if more > 0 else shown) or "error"


def _account(exc: BaseException, culprit: BaseException) -> str:
    """What was raised, and the cause that leaves the outcome open where that is another exception."""
    if isinstance(exc, OutcomeUnknown):
        return _words(exc)
    own = any(culprit is leaf for leaf in _leaves(exc))
    return describe(exc) if own else f"{describe(exc)}, from {describe(culprit)}"


def _failure(exc: BaseException) -> str:
    """What the model is told about a definite failure."""
    if not isinstance(exc, ToolFailed):
        return describe(exc)
    message = _words(exc) or describe(exc)
    return f"{message}\n{clean_text(exc.output)}" if exc.output else message


def _leaves(exc: BaseException) -> list[BaseException]:
    """The exception itself, or the members of a group that are not groups, each once and in order."""
    pending, leaves, seen = [exc], [], set()
    while pending:
        link = pending.pop()
        if id(link) in seen:
            continue
        seen.add(id(link))
        if isinstance(link, BaseExceptionGroup):
            pending.extend(reversed(link.exceptions))
        else:
            leaves.append(link)
    return leaves


def _line(exc: BaseException) -> str:
    words = _words(exc)
    return f"{type(exc).__name__}: {words}" if words else type(exc).__name__


def _words(exc: BaseException) -> str:
    """The exception's own text as one bounded line, empty if it has none."""
    try:
        return _bounded(str(exc))
    except Exception:  # noqa: BLE001 - __str__ of a foreign exception may raise anything; the classifier may not
        return ""


def _bounded(text: str) -> str:
    return printable(text[: 4 * MESSAGE_CHARS_MAX], limit=MESSAGE_CHARS_MAX)
