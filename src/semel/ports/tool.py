"""A tool, and what a call of it is given.

TOOL-1  `run` returns the value that the model is told, or raises; what an exception means is decided by `core.outcomes` alone.
TOOL-2  NotSent is raised only before the first byte was handed over, or when the process could not be started (design 6).
TOOL-3  Cancelling `run` leaves no process of the call running.
TOOL-4  `reconcile` asks what became of a key and never acts.
TOOL-5  `end_leftovers` ends what a dead runtime left running for a call, identified by pid and start time, never by pid
        alone, and by its key where nothing else is known of it.
TOOL-6  A `run` that is cancelled has CANCEL_GRACE_SECONDS to end: what it returns or raises within them is its outcome. Whatever
        can still act for the call behind its end is entered in `ports.roster` with the key of the call.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from semel.core.values import JSON, Frozen, ToolSpec
from semel.errors import ToolFailed

DepsT = TypeVar("DepsT")
UNIX_SECONDS_END = 2**53 / 1000
"""Where milliseconds stop being whole numbers in JSON."""
CANCEL_GRACE_SECONDS = 5.0
"""How long a cancelled tool may take to end before it is abandoned and its outcome is unknown (Q13)."""


class ProcessMark(Frozen, frozen=True, kw_only=True):
    """A process of a call. `started` is its start in clock ticks since `boot`, so a reused pid is not taken for it.

    `call_key` is in the environment of the process and of what it starts: it finds those that left the process group. A `pid` of
    0 says that nobody wrote down which process it was: then only the key can find it, on whatever boot.
    """

    pid: int
    started: int
    boot: str
    call_key: str | None = None


class Happened(Frozen, frozen=True, kw_only=True, tag="happened"):
    """Reconciled: the action took effect; `output` is what the model is told."""

    output: JSON = None


class Never(Frozen, frozen=True, kw_only=True, tag="never"):
    """Reconciled: it did not happen, and nothing under this key can still take effect."""


class StillUnknown(Frozen, frozen=True, kw_only=True, tag="unknown"):
    """Reconciled: the outside cannot tell."""


Reconciled = Happened | Never | StillUnknown


class CancelSignal(Protocol):
    """Tells a tool that its run wants it to end; asyncio's and threading's Event both fit."""

    def is_set(self) -> bool:
        """Whether the run wants it to end."""


@dataclass(frozen=True, kw_only=True)
class Call(Generic[DepsT]):
    """What a tool is told about the call it serves.

    `key` is the idempotency key: equal on every re-run of the same call, distinct for every other (FACT19). `context` is the
    durable JSON of the run, `deps` the live objects of this process. `deadline` is on the monotonic clock, None if unlimited.
    `cancelled.is_set()` says that the call is cut: a plain function, which nothing else tells, has the grace from then on to end.
    """

    key: str
    tool: str
    session: str
    run_id: str
    step_id: int
    ordinal: int
    context: JSON
    deps: DepsT
    arguments: JSON = None
    deadline: float | None = None
    cancelled: CancelSignal | None = None
    progress: Callable[[str], None] = field(default=lambda _text: None)
    spawned: Callable[[ProcessMark], None] = field(default=lambda _mark: None)


class Done(Frozen, frozen=True):
    """Returned by a tool: the value for the model, and a wish to end the run after this batch (A6)."""

    value: JSON


class File(Frozen, frozen=True, kw_only=False):
    """A picture or a document, in memory: returned by a tool, alone or in a list with texts, or sent with a message.

    The model sees it where its family takes such a file, reads it where it is text, and is told of it otherwise. Text is UTF-8,
    and that of a tool's file counts as the tool's text. Without a `media_type`, the content and the `name` say what it is. At
    most 20 MiB, also together with the other files of its message or its result.
    """

    content: bytes
    media_type: str | None = None
    name: str | None = None


def refuse_inner_files(value: object) -> None:
    """Raises ToolFailed where a File is inside another value, which a model would be told as base64."""
    try:
        found = _holds_file(value)
    except RecursionError:
        return  # what is nested that deep is refused where it becomes JSON
    if found:
        raise ToolFailed("the tool ran, but its result cannot be shown: a File is returned alone or directly in a list")


def _holds_file(value: object) -> bool:
    if isinstance(value, File):
        return True
    if isinstance(value, dict):
        return any(map(_holds_file, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_holds_file, value))
    kind = type(value)
    names = getattr(kind, "__struct_fields__", ()) or getattr(kind, "__dataclass_fields__", ())
    return any(_holds_file(getattr(value, name, None)) for name in names)


class Deferred(Frozen, frozen=True):
    """Returned by a tool: the result comes later, under `handle`; the run goes on, and the model reads `text` for now.

    A handle has 1 to 200 characters, and no other call of the session has it. `semel deliver` brings the result (MAP12).
    """

    handle: str
    text: str = "The result comes later."


class Held(Frozen, frozen=True):
    """Returned by a tool: somebody else has the call and owes its result; the run waits and goes on by itself (R28-R33).

    `until` is when it is given up, in seconds of Unix time (`time.time() + 3600`); None if never. `detail` is for people: only
    its digest is recorded.
    """

    reason: str = "held"
    until: float | None = None
    detail: JSON = None

    def __post_init__(self) -> None:
        if not (self.until is None or (isinstance(self.until, int | float) and 0 <= self.until < UNIX_SECONDS_END)):
            raise ValueError(f"until is a number of seconds of Unix time, not {self.until!r}")


class ToolPort(Protocol):
    """One tool of an agent."""

    @property
    def spec(self) -> ToolSpec:
        """What the model sees and recovery knows."""

    async def run(self, arguments: dict[str, JSON], call: Call[object]) -> "JSON | Done | Deferred | Held":
        """Do it. `arguments` passed the tool's schema. The result is JSON, text, a File or several, Done, Deferred or Held."""

    async def reconcile(self, call: Call[object]) -> Reconciled:
        """Ask what became of `call.key`; only called when `spec.reconciles`."""

    async def end_leftovers(self, mark: ProcessMark) -> bool:
        """End the process group of `mark` if it still runs; True if something was ended."""
