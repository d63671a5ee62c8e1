"""The log of a driver: its commits, whole or torn, and what they fold to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from semel.core.ceiling import framed_bytes
from semel.core.codec import encode_checked
from semel.core.features import needed
from semel.core.fold import fold
from semel.core.places import FindRecord
from semel.core.records import (
    ApprovalRecorded,
    Record,
    ToolCallDeferred,
    ToolCallReturned,
    ToolNoDispatch,
    ToolResult,
)
from semel.core.state import Logged, Session
from semel.core.values import Message
from tests.core.machine import LINEAGE
from tests.core.said import find_in, said

SETTLING = (ToolResult, ToolNoDispatch, ToolCallReturned, ToolCallDeferred, ApprovalRecorded)


def settled_in(records: Iterable[Record]) -> set[tuple[str, int]]:
    """The calls, by batch and ordinal, that these records settle: told from the records alone."""
    return {
        (record.batch_id, record.ordinal)
        for record in records
        if isinstance(record, SETTLING) and not (isinstance(record, ApprovalRecorded) and record.output is None)
    }


def size_of(records: Iterable[Record]) -> int:
    """What records take in a log, as the ceiling counts it: a little more than they do."""
    return sum(framed_bytes(len(json), requires) for json, requires, _ in map(encode_checked, records))


@dataclass
class Write:
    """One commit as it is in the log."""

    records: list[Record]
    whole: bool
    fence: int
    _placed: tuple[int, list[Logged]] = field(default=(-1, []), repr=False, compare=False)

    def placed(self, after: int) -> list[Logged]:
        """Its records where they stand; made once for a place."""
        if self._placed[0] != after:
            logged = [
                Logged(
                    seq=seq,
                    at_ms=1000 + seq,
                    fence=self.fence,
                    record=record,
                    torn=not self.whole,
                    requires=needed(record),
                )
                for seq, record in enumerate(self.records, start=after + 1)
            ]
            self._placed = (after, logged)
        return self._placed[1]


def logged_of(writes: Sequence[Write]) -> list[Logged]:
    """The records of these writes, each where it stands."""
    out: list[Logged] = []
    for write in writes:
        out += write.placed(len(out))
    return out


def folded(writes: Sequence[Write]) -> Session:
    """What the log folds to."""
    return fold(logged_of(writes), Session(session="s", lineage=LINEAGE))


class Telling:
    """What the session of a driver says, read from its writes."""

    state: Session
    writes: list[Write]

    @property
    def find(self) -> FindRecord:
        """Finds the records of its log."""
        return find_in(logged_of(self.writes))

    @property
    def said(self) -> list[Message]:
        """The whole conversation."""
        return said(self.state, logged_of(self.writes))
