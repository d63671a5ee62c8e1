"""The log of a session, as the engine sees it.

SessionStore contract
  STORE-1  `open` takes the session's lease first; while it is held, every other `open` of that session raises SessionBusy.
  STORE-2  `open` verifies every frame, but for STORE-8. A torn tail is cut and its bytes kept aside; any other damage raises
           LogDamaged, an intact frame that this build cannot interpret raises NewerWriter, and neither changes a byte (P7, W29).
  STORE-3  `open` of a session that does not exist creates nothing durable until the first append.
  STORE-4  Each `open` has a fence above every fence the session ever had.
  STORE-5  `read` takes no lease, changes nothing, and shows only frames that can never vanish (P6).
  STORE-6  `open` and `read` with `take` hand it their frames, each once, in order and in pieces, as they are read; so a log need
           not fit into memory. `open` changes nothing before all are verified. What `take` raises ends either.
  STORE-7  `recall` gives what was remembered of a session whose log is the same as then, else None; it may forget anything, and
           nothing that is damaged is recalled (P33). What was remembered is a witness: `open` and `read` raise LogDamaged for a
           log that lacks its records, IndexUnavailable where it is there and cannot be asked now, and NewerWriter where a later
           build wrote it, which changes nothing of it.
  STORE-8  `open` with the bookmark of an earlier writer of this store hands out only what lies behind it, where the log goes on
           from there, else all of it. What lies in front is verified where the file was written to since. All else of an open
           stays. Where nobody had the session since, a log that lost records is damaged, also if it was cut between two.
  STORE-9  `mark` changes whenever the log is written to, and asks for no more than its file says of itself.
  STORE-10 `sessions` names every session, also one whose log cannot be read or is gone; what cannot be named is in `strays`. None
           keeps another from being named.

LogWriter contract
  LOG-1  `append` returns after its frames are durable; until then no reader shows them.
  LOG-2  The frames of one append are one write: seq gapless from head + 1, `left` counting down to 0, one fence.
  LOG-3  `append` refuses (AppendRefused) before writing: an empty batch, a payload over the cap, a lineage line not first.
  LOG-4  A failed write leaves the log at its last good frame, or poisons the writer; a failed sync always poisons it (HAZ3).
  LOG-5  A poisoned or closed writer accepts nothing more.
  LOG-6  A file that changed under the writer raises ForeignWrite and nothing is written (W34).
  LOG-7  `note` writes without a sync: the frames become durable with the next append, and a process death keeps them.
  LOG-8  `check` raises LeaseLost when the lease is no longer held; the engine calls it immediately before each dispatch (P8).
  LOG-9  `close` gives the lease back, once, after the last sync.
  LOG-10 `foresee` makes the floor hold features that coming frames may need, so that no later append waits for that while the
         outcome of an action is in memory only.
  LOG-11 `append` and `note` raise SessionFull before they write what would make the log longer than `ceiling_bytes`; the
         writer goes on (W10, W12).
  LOG-12 `frame` gives any frame of the log again, verified, whether it was there at open or written since; it raises LogDamaged
         where the log does not hold it any more. What it costs does not grow with the log.
  LOG-13 `bookmark` stands for the whole log behind a `close` in good order: every byte of it is durable. A writer that failed,
         lost its lease, or whose file somebody changed has none.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from semel.core.frame import Frame
from semel.core.values import Frozen
from semel.errors import StoreError
from semel.ports.blobs import Blobs


class Payload(Frozen, frozen=True, kw_only=True):
    """One record on its way into the log: its JSON, the features it needs (sorted), and whether it is the lineage line."""

    json: bytes
    requires: tuple[str, ...] = ()
    lineage: bool = False


class View(Frozen, frozen=True, kw_only=True):
    """What a reader may show: frames with seq above the one asked for, up to `head` (the highest that can never vanish).

    `owner` describes the process that holds the lease, None if nobody does. `mark` stands for exactly these bytes of the log,
    for `remember`; None where more may be there than is shown.
    """

    frames: tuple[Frame, ...]
    head: int
    owner: str | None = None
    mark: str | None = None


class Bookmark(Protocol):
    """Where a writer left a log in good order. What else is in it is its store's business."""

    @property
    def digest(self) -> str:
        """The digest of the last frame, which names the whole history."""


TakeFrames = Callable[[Sequence[Frame]], None]
"""Is handed verified frames while a log is opened or read."""


class LogWriter(Protocol):
    """The single writer of one session, from `open` to `close`."""

    @property
    def frames(self) -> Sequence[Frame]:
        """The frames that were verified at open, the lineage line first. Empty for a new session, and where `take` has them."""

    @property
    def fence(self) -> int:
        """The tenure stamp of this writer."""

    @property
    def head(self) -> int:
        """The seq of the last frame written; 0 before the first record."""

    @property
    def digest(self) -> str:
        """The digest of the last frame written, which names the whole history; 64 zeros before the first."""

    @property
    def size_bytes(self) -> int:
        """How long the log is."""

    @property
    def ceiling_bytes(self) -> int:
        """How long it may become."""

    @property
    def inline(self) -> bool:
        """Whether `append` may begin in its caller's task: it needs none of its own, and often comes to its end at once."""

    @property
    def blobs(self) -> Blobs:
        """The session's large content; put before the record that names it."""

    async def append(self, batch: Sequence[Payload], *, at_ms: int | None = None) -> Sequence[Frame]:
        """Write `batch` as one write, sync it, and return its frames. They are stamped `at_ms`, or with the store's own time."""

    def note(self, batch: Sequence[Payload], *, at_ms: int | None = None) -> Sequence[Frame]:
        """Write `batch` without a sync; for facts that only matter while this machine is up."""

    def frame(self, seq: int) -> Frame:
        """The frame of that seq, at most `head`, read again."""

    def foresee(self, features: Sequence[str]) -> None:
        """Raise the floor now for frames that may come; raises StoreError if it cannot, and then nothing was written."""

    def check(self) -> None:
        """Raise LeaseLost unless this writer still holds the lease."""

    def publish_status(self, status: bytes) -> None:
        """Replace the session's status document atomically; after a sync of what it describes."""

    @property
    def bookmark(self) -> Bookmark | None:
        """Once it is closed: where the same store may open the session again (LOG-13)."""

    async def close(self) -> None:
        """Sync, close and give the lease back; idempotent."""


class SessionStore(Protocol):
    """All sessions of one state root."""

    def sessions(self) -> Sequence[str]:
        """The ids of all sessions, sorted; one that cannot be read is among them. Raises StoreError only if none can be told."""

    def strays(self) -> Mapping[str, StoreError]:
        """What may be a session though nothing tells which: by a name for people, with the reason. It cannot be opened.

        Who needs both asks for these first, and for `sessions` then: what was no stray is among those, whatever happened between.
        """

    def exists(self, session: str) -> bool:
        """Whether the session has a log."""

    def made_here(self, session: str) -> bool:
        """Whether the log was made by this user, as far as its file tells. Code that a log names is loaded only then."""

    def owner(self, session: str) -> str | None:
        """Who holds the lease now, in words; None if nobody does."""

    async def open(self, session: str, *, take: TakeFrames | None = None, bookmark: Bookmark | None = None) -> LogWriter:
        """Take the lease, verify, recover the tail, and return the writer. `take` may be called in another thread.

        With a `bookmark` of this store, `take` gets what lies behind it, or everything, from the lineage line on (STORE-8).
        """

    def read(self, session: str, after: int = -1, *, take: TakeFrames | None = None) -> View:
        """Frames with seq > `after` that can never vanish; -1 includes the lineage line. The owner itself sees all of its own.

        With `take` it gets them and the view holds none; damage that is found behind what it got is raised all the same.
        """

    def blobs(self, session: str) -> Blobs:
        """The large content of a session, for reading."""

    def mark(self, session: str) -> str | None:
        """Stands for the bytes of the log as they are, without reading them; None where there is none."""

    def recall(self, session: str) -> bytes | None:
        """What `remember` was given for the log as it is now; None if it has changed, or nothing is known."""

    def remember(self, session: str, mark: str, content: bytes) -> None:
        """Keep what was derived from a view with this mark. Raises as STORE-7; whoever lists goes on without."""

    @property
    def index_faults(self) -> Sequence[str]:
        """What this process has found damaged of what was remembered, one sentence each."""

    def remembered(self, session: str) -> int:
        """The highest record of a session without a log that something beside it calls durable; 0 if none was.

        Raises IndexUnavailable and NewerWriter.
        """

    def read_status(self, session: str) -> bytes | None:
        """The last published status document."""
