"""All sessions of one state directory, each an append-only log file (design 3)."""

import asyncio
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from weakref import WeakValueDictionary

from semel.adapters.file.blobs import FileBlobs, refuse_reader
from semel.adapters.file.bookmark import FileBookmark
from semel.adapters.file.copies import copy_at, refuse_copy
from semel.adapters.file.disk import Disk
from semel.adapters.file.floor import FileFloor
from semel.adapters.file.index import Index
from semel.adapters.file.lease import Lease, contact_of, look_at
from semel.adapters.file.names import directory_name, is_digest
from semel.adapters.file.parking import clear, is_marked, refuse_marked
from semel.adapters.file.reader import Reader, mark_of
from semel.adapters.file.recovery import recover
from semel.adapters.file.roll import lineage_in, session_in, strays
from semel.adapters.file.root import Place, Root, naming
from semel.adapters.file.syncs import Syncs
from semel.adapters.file.threads import settled
from semel.adapters.file.writer import FileWriter
from semel.core.ceiling import CEILING_BYTES
from semel.core.frame import Lineage, witnessed
from semel.errors import StoreError, UnknownSession
from semel.ports.control import Contact
from semel.ports.log import Bookmark, TakeFrames, View
from semel.ports.world import Clock


class FileStore:
    """Implements `ports.log.SessionStore` on a directory of this machine.

    `known` are the features that this build can interpret. With `inline_sync` a sync blocks the event loop, which is
    fastest where semel owns the loop and one session writes; otherwise a thread does it.
    """

    def __init__(
        self,
        root: Path,
        clock: Clock,
        *,
        known: frozenset[str],
        disk: Disk | None = None,
        inline_sync: bool = True,
        ceiling_bytes: int = CEILING_BYTES,
        parking: bool = False,
    ) -> None:
        """Touches nothing yet. With `parking`, sessions may be opened whose run must be closed after a repair or restore."""
        self._ceiling_bytes, self._parking = ceiling_bytes, parking
        self._root = Root(Path(root), disk or Disk())
        self._disk, self._clock, self._known, self._inline = self._root.disk, clock, known, inline_sync
        self._reader = Reader(self._disk, known, self.witness)
        self._writers: WeakValueDictionary[str, FileWriter] = WeakValueDictionary()
        self.floor = FileFloor(self._root)
        self._index = Index(self._root.path)
        self._told: dict[str, str] = {}  # of directories that hide their session, which it is
        self._address: str | None = None
        self._syncs: Syncs | None = None

    @property
    def root(self) -> Root:
        """The state directory, for upkeep."""
        return self._root

    def refuse_copy(self) -> None:
        """Raise IsCopy for a directory that nothing may be written to."""
        refuse_copy(self._root)

    @property
    def index(self) -> Index:
        """The index, for upkeep."""
        return self._index

    @property
    def known(self) -> frozenset[str]:
        """The features that this build can interpret."""
        return self._known

    def session_in(self, name: str) -> str | None:
        """The id of the session that a directory name stands for; None if it is none of ours.

        One that was told once is known from then on, so that who asks for strays first and for sessions then misses none between.
        """
        session = self._told.get(name) or session_in(self._root, self._index, name)
        if session is not None and is_digest(name):
            self._told[name] = session
        return session

    @property
    def path(self) -> Path:
        """The state directory, absolute."""
        return self._root.path

    def log_path(self, session: str) -> Path:
        """Where the log of a session is, or would be."""
        return Place(self._root, session).log

    def sessions(self) -> Sequence[str]:
        """The ids of all sessions that `is_listed` says yes to, sorted. Raises StoreError only if none can be told."""
        with naming("list", self.path), suppress(FileNotFoundError), self._root.sessions() as directory:
            found = (self.session_in(name) for name in self._disk.names(directory))
            return sorted(session for session in found if session is not None and self.is_listed(session))
        return []

    def strays(self) -> Mapping[str, StoreError]:
        """What may be a session though nothing tells which, by the name of its directory, with the reason."""
        return strays(self._root, self._index, self._known, self.session_in)

    def is_listed(self, session: str) -> bool:
        """Whether there is a log, a status or a row of the index that remembers one, or something that lets nobody look for them.

        So neither a log that is gone is hidden, nor one that cannot be read.
        """
        try:
            return self.exists(session) or self.read_status(session) is not None or self.remembered(session) > 0
        except StoreError:
            return True

    def exists(self, session: str) -> bool:
        """Whether the session has a log with at least a byte in it, or something else in its place."""
        path = self.log_path(session)
        with naming("look at", path), suppress(FileNotFoundError, NotADirectoryError):
            found = self._disk.status_of(path)
            return found.st_size > 0 or not stat.S_ISREG(found.st_mode)
        return False

    def made_here(self, session: str) -> bool:
        """Whether the log's file is ours alone, as semel makes it; one from a checkout or an archive of others is not."""
        path = self.log_path(session)
        with naming("look at", path), suppress(FileNotFoundError, NotADirectoryError):
            return not self._disk.status_of(path).st_mode & 0o077
        return False

    def owner(self, session: str) -> str | None:
        """Who holds the lease now, in words; None if nobody does."""
        place = Place(self._root, session)
        with naming("look at", place.lease), suppress(FileNotFoundError), place.open() as directory:
            return look_at(place, directory).owner
        return None

    def answer_at(self, address: str | None) -> None:
        """The address that the leases taken from now on name; see `ports.control`."""
        self._address = address

    def contact(self, session: str) -> Contact | None:
        """How to reach whoever holds the lease now; None if nobody does."""
        place = Place(self._root, session)
        with naming("look at", place.lease), suppress(FileNotFoundError), place.open() as directory:
            look = look_at(place, directory)
            if look.owner is not None:
                lineage = lineage_in(self._disk, directory, place.log)
                return contact_of(self._disk, look, None if lineage is None else lineage.lineage)
        return None

    async def open(self, session: str, *, take: TakeFrames | None = None, bookmark: Bookmark | None = None) -> FileWriter:
        """Take the lease, verify every frame or those behind the bookmark, recover the tail, and return the writer."""
        place, syncs = Place(self._root, session), self._syncs_here()
        start = bookmark if isinstance(bookmark, FileBookmark) else None
        if self._inline:
            return self._open(place, take, start, syncs)
        return await settled(lambda: self._open(place, take, start, syncs), FileWriter.abandon)

    def read(self, session: str, after: int = -1, *, take: TakeFrames | None = None) -> View:
        """Frames with seq > `after` that can never vanish; raises UnknownSession if there is no log."""
        place = Place(self._root, session)
        if not self.exists(session) and not self.remembered(session):
            raise UnknownSession(f"there is no session {session!r} in {self.path}")
        self.floor.refuse_newer(self._known)
        writer = self._writers.get(session)
        durable = -1 if writer is None else writer.durable
        with naming("read", place.log), place.open() as directory:
            return self._reader.view(place, directory, after=after, durable=durable, take=take)

    def blobs(self, session: str) -> FileBlobs:
        """The blobs of a session, for reading; its writer's may be changed."""
        return FileBlobs(Place(self._root, session), refuse_reader)

    def mark(self, session: str) -> str | None:
        """Stands for the bytes of the log as they are."""
        try:
            return mark_of(self._disk.status_of(self.log_path(session)))
        except OSError:
            return None

    def recall(self, session: str) -> bytes | None:
        """What was remembered of a log that is still the same."""
        self.floor.refuse_newer(self._known)
        mark = self.mark(session)
        return None if mark is None else self._index.recall(session, mark)

    def remember(self, session: str, mark: str, content: bytes) -> None:
        """Keep what was derived from a log; nothing is written to a copy. Raises IndexUnavailable, NewerWriter."""
        if copy_at(self._root) is None:
            self._index.remember(session, mark, content)

    @property
    def index_faults(self) -> tuple[str, ...]:
        """What this process has found damaged of the index, one sentence each."""
        return self._index.faults

    def witness(self, session: str, lineage: Lineage | None) -> int:
        """The highest record of this log that the index calls durable. Raises IndexUnavailable, NewerWriter."""
        return self._index.witness(session, lineage)

    def remembered(self, session: str) -> int:
        """The highest record of a session without a log that its status or the index calls durable; 0 if none was.

        What the index knows counts where the directory tells of a tenure: one that is new is of a session that is made anew.
        """
        place, status = Place(self._root, session), witnessed(self.read_status(session))
        with naming("look at", place.lease), suppress(FileNotFoundError), place.open() as directory:
            if look_at(place, directory).stamped:
                return max(status, self.witness(session, None))
        return status

    def removed(self) -> Mapping[str, int]:
        """Sessions that the index remembers and whose directory is gone, with the highest record of each that was durable.

        Raises IndexUnavailable and NewerWriter.
        """
        known = self._index.known()
        with naming("list", self.path), suppress(FileNotFoundError), self._root.sessions() as directory:
            there = set(self._disk.names(directory))
            return {session: head for session, head in known.items() if directory_name(session) not in there}
        return known

    def must_park(self, session: str) -> bool:
        """Whether the session was repaired or restored and its open run is not closed yet."""
        return is_marked(Place(self._root, session))

    def parked(self, session: str) -> None:
        """The open run of a session is closed: it may be used again."""
        place = Place(self._root, session)
        with naming("use", place.log), place.open() as directory:
            clear(place, directory)

    def read_status(self, session: str) -> bytes | None:
        """The last published status document."""
        place = Place(self._root, session)
        with naming("read", place.status), suppress(FileNotFoundError), place.open() as directory:
            return place.read_status(directory)
        return None

    def _syncs_here(self) -> Syncs:
        """What all writers of this event loop share."""
        loop = asyncio.get_running_loop()
        if self._syncs is None or self._syncs.loop is not loop:
            self._syncs = Syncs(loop)
        return self._syncs

    def _open(self, place: Place, take: TakeFrames | None, start: FileBookmark | None, syncs: Syncs) -> FileWriter:
        self.refuse_copy()
        self._root.prepare()
        self.floor.refuse_newer(self._known)
        with naming("open", place.log), place.open(create=True) as directory:
            lease = Lease.take(place, directory, self._address)
            try:
                if not self._parking:
                    refuse_marked(place)
                log = recover(place, directory, lease, known=self._known, witness=self.witness, take=take, bookmark=start)
                self.floor.raise_to(log.scan.features)
                writer = FileWriter(
                    place,
                    lease,
                    log,
                    floor=self.floor,
                    clock=self._clock,
                    syncs=syncs,
                    inline=self._inline,
                    ceiling_bytes=self._ceiling_bytes,
                )
            except BaseException:
                lease.release()
                raise
        self._writers[place.session] = writer
        return writer
