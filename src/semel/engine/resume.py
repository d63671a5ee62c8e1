"""Open a session after whatever happened to it: read, verify, fold (P2), and end what a dead process left running (B37)."""

from dataclasses import dataclass

from msgspec.structs import replace

from semel.core.open_log import Opening
from semel.core.standing import doubtful
from semel.core.state import Session
from semel.core.values import Frozen
from semel.engine.barrier import Barrier
from semel.engine.feed import Feed
from semel.engine.perform import Performer
from semel.ports.control import Control
from semel.ports.log import Bookmark, LogWriter, SessionStore
from semel.ports.model import Rendered
from semel.ports.parked import ParkedHook
from semel.ports.world import Clock, Ids


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What sessions stand on: the ports that all of them share.

    `parked` tells a person that a session waits for one. Without `control` no other process can ask for anything.
    """

    store: SessionStore
    clock: Clock
    ids: Ids
    parked: ParkedHook | None = None
    control: Control | None = None


class Left(Frozen, frozen=True, kw_only=True):
    """A session that was given back in good order: what it came to, where its log ends, and what was rendered of it."""

    state: Session
    bookmark: Bookmark
    rendered: Rendered | None = None


async def open_session(ground: Ground, session: str, feed: Feed, left: Left | None = None) -> tuple[LogWriter, Barrier]:
    """Take the lease, verify and fold the log; blobs that none of its records names go. What is wrong with it is raised.

    A session that this process `left` is gone on with from there, as far as its store says that its log does.
    Raises SessionBusy, LogDamaged, NewerWriter, CorruptLog, and StoreError.
    """
    opening = Opening(session) if left is None else Opening(session, left.state)
    writer = await ground.store.open(session, take=opening.take, bookmark=None if left is None else left.bookmark)
    try:
        state = opening.state() if writer.size_bytes else Session(session=session)
        if not state.lineage:
            state = replace(state, lineage=ground.ids.fresh())
        if opening.whole:
            writer.blobs.collect(opening.blobs)
    except BaseException:
        await writer.close()
        raise
    return writer, Barrier(writer, feed, ground.clock, state, new=writer.size_bytes == 0)


async def end_leftovers(state: Session, performer: Performer) -> tuple[str, ...]:
    """End the processes of calls that a dead runtime may have sent; returns the keys of those that still ran."""
    run = state.run
    batch = run.step.batch if run is not None and run.step is not None else None
    if run is None or batch is None:
        return ()
    open_calls = [batch.calls[at] for at in sorted(doubtful(run, batch))]
    return tuple([call.planned.call_key for call in open_calls if await performer.end_leftovers(call)])
