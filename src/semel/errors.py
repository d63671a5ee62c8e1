"""Every error semel raises on purpose.

    SemelError
    ├── UsageError             the caller must change something; nothing was written
    │   ├── UnknownSession, UnknownCall, UnknownModel, BadSessionId, BadAgent, BadSettings
    │   ├── KeyReuse           same key, different payload
    │   ├── SendRetracted      the message of that key was taken back
    │   ├── BlankMessage       a message without text
    │   ├── HookRefused        a hook of the agent did not let the message through
    │   ├── BadHistory         a conversation that no provider would take
    │   ├── UnknownMessage     no message of that key waits in the queue
    │   ├── ApprovalClosed     the approval was answered otherwise
    │   ├── VerdictConflict    the call was already resolved otherwise
    │   ├── OutcomePending     a person must look before this message
    │   ├── RuntimeLeft        used behind its block
    │   └── UnsupportedPlatform
    ├── StoreError
    │   ├── SessionBusy        somebody else holds the lease
    │   ├── LeaseLost          we no longer hold it
    │   ├── LogDamaged         bytes that no crash of ours can have left (P7)
    │   ├── NewerWriter        intact, but written by a newer build (W15, W29)
    │   ├── ForeignWrite       the file changed under its writer (W34)
    │   ├── WriterPoisoned     a write or sync failed; nothing more is accepted (HAZ3)
    │   ├── AppendRefused      the store refused before writing anything
    │   ├── IndexUnavailable   the index, which may know more than a log says, cannot be asked now
    │   ├── BlobDamaged        content beside a log is missing or is not what its name says
    │   ├── SessionFull        the log would grow beyond its ceiling; nothing was written (W12)
    │   ├── NotParked          repaired or restored, and its open run is not closed yet
    │   ├── IsCopy             the directory is a backup, or a backup or restore that did not end has left it
    │   └── UnsafeStore        permissions, file type or file system
    ├── CorruptLog             a record that no legal writer can have written (K1-K14)
    ├── ModelError             a model exchange that gave no answer
    ├── ToolFailed             raised by a tool: a definite failure, the model is told
    ├── CallNotSent            raised by a tool: nothing was handed over, so nothing can have happened
    ├── OutcomeUnknown         raised by a tool: it cannot tell what became of the call
    ├── RunNotCompleted        the output of a run was asked for that has none
    └── InvariantBroken        a bug in semel

Each class answers two questions for whoever catches it: `happened` (may the action have taken effect?) and `retry`
(is it worth trying again?). `code` is stable: command line, status file and docs use it. `exit` is the process exit code.
"""

import shlex
from collections.abc import Sequence
from typing import ClassVar, Literal, TypeVar

Happened = Literal["no", "maybe", "yes"]
Retry = Literal["now", "later", "never"]
T = TypeVar("T")


class SemelError(Exception):
    """Base of all errors that semel raises on purpose. The message says what happened, where, and what to do."""

    code: ClassVar[str] = "error"
    happened: ClassVar[Happened] = "no"
    retry: ClassVar[Retry] = "never"
    exit: ClassVar[int] = 1


class UsageError(SemelError):
    """The request itself cannot be served; nothing was written."""

    code = "usage"
    exit = 2


class BadSettings(UsageError):
    """A setting, flag or environment variable has a value that cannot be used."""

    code = "bad_settings"


class BadSessionId(UsageError):
    """A session id is empty, longer than 200 bytes, or not text."""

    code = "bad_session_id"


class UnknownSession(UsageError):
    """No session of that name exists in this state directory."""

    code = "unknown_session"


class UnknownCall(UsageError):
    """No call has that key, or the prefix fits several."""

    code = "unknown_call"


class UnknownModel(UsageError):
    """The model is not named as `provider:model` or `family:model@URL`, or its provider is not known."""

    code = "unknown_model"


class BadAgent(UsageError):
    """An agent cannot be loaded, is not what the log names, or its definition is wrong."""

    code = "bad_agent"


class KeyReuse(UsageError):
    """A key was used again with a different payload; the message names the field that differs."""

    code = "key_reuse"


class SendRetracted(UsageError):
    """The message of that key was taken back; it will not be sent again (FACT18)."""

    code = "send_retracted"


class BlankMessage(UsageError):
    """A message without text: no provider takes one."""

    code = "blank_message"


class HookRefused(UsageError):
    """A pre-user hook of the agent did not let the message through, or failed; nothing was accepted (A14)."""

    code = "hook_refused"


class BadHistory(UsageError):
    """A supplied conversation breaks a rule of the history contract; the message names the place and the rule (T12)."""

    code = "bad_history"


class UnknownMessage(UsageError):
    """No message of that key waits in the queue: none was sent, or it was started or taken back before."""

    code = "unknown_message"


class ApprovalClosed(UsageError):
    """An approval was answered otherwise before, or its run has ended."""

    code = "approval_closed"


class VerdictConflict(UsageError):
    """An unknown call already has a different verdict."""

    code = "verdict_conflict"


class OutcomePending(UsageError):
    """A message was not accepted: the session's last run was just found to have a call whose outcome is unknown (P3)."""

    code = "outcome_pending"
    exit = 3


class RuntimeLeft(UsageError):
    """A runtime was used behind its `async with` block."""

    code = "runtime_left"


class UnsupportedPlatform(UsageError):
    """semel runs on Linux and macOS; on Windows it runs inside WSL."""

    code = "unsupported_platform"


class StoreError(SemelError):
    """The log could not be opened, read or appended to."""

    code = "store"


class SessionBusy(StoreError):
    """Another process holds the session's lease; the message says which."""

    code = "session_busy"
    retry = "later"
    exit = 7


class LeaseLost(StoreError):
    """The lease that this writer held is gone; it can neither append nor dispatch (P8)."""

    code = "lease_lost"
    exit = 7


class LogDamaged(StoreError):
    """The log holds bytes that are neither good frames nor an unacknowledged torn tail (P7). Nothing was changed."""

    code = "log_damaged"
    exit = 6

    def __init__(self, path: str, offset: int, seq: int, reason: str) -> None:
        """`offset` is the byte where the first bad frame starts, `seq` the number it should have had."""
        super().__init__(
            f"{path} is damaged at byte {offset}, where record {seq} should start: {reason}. "
            f"Nothing was changed. Look with `semel verify`, then restore the file from a copy."
        )
        self.path, self.offset, self.seq, self.reason = path, offset, seq, reason


class NewerWriter(StoreError):
    """Intact data that this build cannot interpret: a newer build wrote it (W15, W29). Nothing was changed."""

    code = "newer_writer"
    exit = 6

    def __init__(self, where: str, features: Sequence[str] = (), detail: str = "") -> None:
        """`features` are the names that this build lacks, if the frame says so."""
        what = f"needs {', '.join(features)}" if features else detail or "is of an unknown version"
        super().__init__(f"{where} {what}: a newer semel wrote it. Nothing was changed. Upgrade semel to open it.")
        self.features = tuple(features)


class ForeignWrite(StoreError):
    """The log file changed under its writer: another program wrote to it or replaced it (W34)."""

    code = "foreign_write"
    exit = 6


class WriterPoisoned(StoreError):
    """A write or sync failed, so what is on disk is doubtful. Open the session again to find out (HAZ3)."""

    code = "writer_poisoned"
    happened = "maybe"


class AppendRefused(StoreError):
    """The append was refused before a byte was written."""

    code = "append_refused"


class IndexUnavailable(StoreError):
    """The index cannot be asked now whether a log has lost records that it remembers, so the log is not used."""

    code = "index_unavailable"
    retry = "later"


class BlobDamaged(StoreError):
    """Content that a record names is missing, or is not what its name says. Nothing was changed."""

    code = "blob_damaged"
    exit = 6


class SessionFull(StoreError):
    """The log of the session would grow into what is kept free to close it (W10-W13). Nothing was written; it stays usable."""

    code = "session_too_large"


class NotParked(StoreError):
    """The session was restored or repaired, and its open run must be closed before anything else is done with it."""

    code = "not_parked"
    exit = 2


class IsCopy(StoreError):
    """The directory is a backup, or was left by a backup or restore that did not end: it can be read, and not written to."""

    code = "is_copy"
    exit = 2


class UnsafeStore(StoreError):
    """The state directory cannot be trusted: its permissions, owner, file type or file system."""

    code = "unsafe_store"
    exit = 2


class CorruptLog(SemelError):
    """A verified record contradicts the log before it; only a bug in a writer can do that (K1-K14). Never repaired."""

    code = "corrupt_log"
    exit = 6

    def __init__(self, reason: str, *, session: str, run_id: str | None, seq: int, detail: str) -> None:
        """`reason` is one of the fourteen names; `seq` is the record at which it was noticed."""
        super().__init__(f"session {session!r} contradicts itself at record {seq}: {reason} ({detail}). Nothing was changed.")
        self.reason, self.session, self.run_id, self.seq, self.detail = reason, session, run_id, seq, detail


class ToolFailed(SemelError):
    """Raised by a tool to say that it failed for certain; the model sees the message and the run goes on.

    `output` is what the tool had to show, if anything: the model sees it below the message, with its lines kept.
    """

    code = "tool_failed"

    def __init__(self, message: str = "", *, output: str = "") -> None:
        """`message` becomes one bounded line; an empty one is replaced by the class's name."""
        super().__init__(message)
        self.output = output


class CallNotSent(SemelError):
    """Raised by a tool adapter before the first byte was handed over, or when a process could not be started (B6, FACT22)."""

    code = "call_not_sent"
    retry = "later"


class OutcomeUnknown(SemelError):
    """Raised by a tool that cannot tell whether its action took effect (B7); a `once` call then stops its run."""

    code = "outcome_unknown"
    happened = "maybe"


class RunNotCompleted(SemelError):
    """The output was asked for of a run that has none; the message names the next command."""

    code = "run_not_completed"


class InvariantBroken(SemelError):
    """semel contradicts itself; please report it."""

    code = "invariant_broken"
    happened = "maybe"


def must(condition: bool, rule: str, **facts: object) -> None:
    """Guard a rule that durable data depends on; unlike `assert` it is never stripped."""
    if not condition:
        raise InvariantBroken(f"{rule} ({', '.join(f'{name}={value!r}' for name, value in facts.items())})")


def need(value: T | None, rule: str) -> T:
    """A value that the rule says is there."""
    if value is None:
        raise InvariantBroken(rule)
    return value


def command(*words: str) -> str:
    """A command of semel that a message names as the next step: quoted for a shell, in the marks that set it off.

    The command line adds the state directory that it was given (`faces.cli.remedies`), which nothing further in knows.
    """
    return f"`{shlex.join(['semel', *words])}`"
