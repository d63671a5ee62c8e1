"""The contract of `ports.log` as checks that any adapter must pass, one per numbered line; the floor's are beside it.

A check takes a bench: a fresh medium, on which it can start processes, let them die, and do what no process should.
"""

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from semel.core.frame import PAYLOAD_BYTES_MAX, Frame, TailKind, scan
from semel.errors import (
    AppendRefused,
    ForeignWrite,
    LeaseLost,
    LogDamaged,
    NewerWriter,
    SessionBusy,
    SessionFull,
    WriterPoisoned,
    must,
)
from semel.ports.log import Payload
from semel.testing.bench import KNOWN, LINEAGE, SESSION, LogBench, LogCheck, records, refuses, started
from semel.testing.conformance_floor import FLOOR_CHECKS, FloorBench, check_floor, refuses_now
from semel.testing.conformance_reading import READ_CHECKS

__all__ = [
    "FLOOR_CHECKS",
    "KNOWN",
    "LEASE_CHECKS",
    "LOG_CHECKS",
    "FloorBench",
    "LogBench",
    "check_floor",
    "check_leases",
    "check_log",
    "newer_frame",
    "records",
]


def _texts(frames: Sequence[Frame]) -> list[bytes]:
    return [frame.payload for frame in frames]


def newer_frame(data: bytes) -> bytes:
    """`data` with an intact frame behind it, of a version that no build knows yet."""
    found = scan(data)
    payload = b'{"type":"from the future"}'
    head = b"9 %d 1767225600000 %d %d 0 %d - " % (found.point.seq, found.point.fence, found.point.synced, len(payload))
    head = b"%b%08x " % (head, zlib.crc32(head))
    digest = hashlib.sha256(found.point.digest.encode() + head + payload).hexdigest()
    return b"%b%b%b %b\n" % (data, head, digest.encode(), payload)


async def _one_writer_at_a_time(bench: LogBench) -> None:
    first, second = bench.process(), bench.process()
    writer = await first.open(SESSION)
    await refuses(SessionBusy, lambda: second.open(SESSION))
    await refuses(SessionBusy, lambda: first.open(SESSION))
    must(second.owner(SESSION) is not None, "the owner can be asked for")
    await writer.close()
    must(second.owner(SESSION) is None, "a closed writer owns nothing")
    await (await second.open(SESSION)).close()


async def _open_verifies(bench: LogBench) -> None:
    await (await started(bench.process(), "a", "b")).close()
    whole = bench.raw(SESSION)
    damaged = whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]
    for error, data in ((LogDamaged, damaged), (NewerWriter, newer_frame(whole))):
        bench.plant(SESSION, data)
        await refuses(error, lambda: bench.process().open(SESSION))
        must(bench.raw(SESSION) == data, "a refused log is not changed", error=error)
    bench.plant(SESSION, whole[:-3])
    writer = await bench.process().open(SESSION)
    must(len(writer.frames) == 2 and whole.startswith(bench.raw(SESSION)), "a torn tail is cut")
    await writer.append(records("c"))
    await writer.close()
    must(scan(bench.raw(SESSION)).tail.kind is TailKind.CLEAN, "the log goes on behind the cut")


async def _unknown_features_refuse(bench: LogBench) -> None:
    writer = await started(bench.process())
    await writer.append(records("gated", requires=("known/v1",)))
    await writer.append(records("newer", requires=("known/v1", "unknown/v1")))
    await writer.close()
    data = bench.raw(SESSION)
    await refuses(NewerWriter, lambda: bench.process().open(SESSION))
    refuses_now(NewerWriter, lambda: bench.process().read(SESSION))
    must(bench.raw(SESSION) == data, "a refused log is not changed")


async def _nothing_before_the_first_append(bench: LogBench) -> None:
    store = bench.process()
    writer = await store.open(SESSION)
    must(len(writer.frames) == 0 and writer.head == 0, "a new session is empty")
    await refuses(AppendRefused, lambda: writer.append([]))
    must(not store.exists(SESSION) and not store.sessions(), "an open session without a record does not exist")
    await writer.close()
    must(not store.exists(SESSION), "nor does it after its writer is closed")
    await (await started(store)).close()
    must(store.exists(SESSION) and list(store.sessions()) == [SESSION], "it exists from its first append on")


async def _fences_rise(bench: LogBench) -> None:
    fences = []
    for turn in range(4):
        store = bench.process()
        writer = await store.open(SESSION)
        fences.append(writer.fence)
        if turn == 1:
            await writer.append([LINEAGE, *records("a")])
        if turn % 2:
            bench.end(store)
        else:
            await writer.close()
    must(fences == sorted(set(fences)), "each open has a higher fence, whatever the one before did", fences=fences)


async def _appended_is_durable(bench: LogBench) -> None:
    store = bench.process()
    writer = await started(store, "a")
    frames = await writer.append(records("b", "c"))
    bench.end(store)
    found = await bench.process().open(SESSION)
    must(list(found.frames[-2:]) == list(frames), "what append returned is what is found after a death")
    await found.close()


async def _one_append_is_one_write(bench: LogBench) -> None:
    writer = await started(bench.process(), "a", "b")
    frames = [*writer.note(records("c")), *await writer.append(records("d", "e", "f"))]
    must([frame.seq for frame in frames] == [3, 4, 5, 6] and writer.head == 6, "seq is gapless")
    must([frame.left for frame in frames] == [0, 2, 1, 0], "left counts down within a write")
    must({frame.fence for frame in frames} == {writer.fence}, "one fence per tenure")
    await writer.close()
    must(list(scan(bench.raw(SESSION)).frames[3:]) == frames, "the log holds exactly these frames")


async def _bad_batches_write_nothing(bench: LogBench) -> None:
    store = bench.process()
    writer = await store.open(SESSION)
    await refuses(AppendRefused, lambda: writer.append(records("no lineage line")))
    must(bench.raw(SESSION) == b"", "a refused first batch makes no log")
    await writer.append([LINEAGE, *records("a")])
    before = bench.raw(SESSION)
    too_big = Payload(json=b'"' + b"x" * PAYLOAD_BYTES_MAX + b'"')
    unsorted = records("x", requires=("b/v1", "a/v1"))
    for batch in ([], [LINEAGE], [*records("b"), too_big], [Payload(json=b"{\n}")], [Payload(json=b"")], unsorted):
        await refuses(AppendRefused, partial(writer.append, batch))
        refuses_now(AppendRefused, partial(writer.note, batch))
    must(bench.raw(SESSION) == before, "a refused batch writes nothing")
    await writer.append(records("still writing"))
    await writer.close()


async def _failures_leave_good_frames(bench: LogBench) -> None:
    store = bench.process()
    writer = await started(store, "a")
    before = bench.raw(SESSION)
    bench.fail_next("write")
    await refuses(AppendRefused, lambda: writer.append(records("lost")))
    must(bench.raw(SESSION) == before, "a failed write leaves the log at its last good frame")
    await writer.append(records("b"))
    bench.fail_next("sync")
    await refuses(WriterPoisoned, lambda: writer.append(records("doubtful")))
    await refuses(WriterPoisoned, lambda: writer.append(records("never")))
    await writer.close()
    must(b"never" not in bench.raw(SESSION), "a failed sync ends the writer")
    again = await bench.process().open(SESSION)
    must(again.head in {2, 3}, "and the session opens again")
    await again.close()


async def _dead_writers_accept_nothing(bench: LogBench) -> None:
    writer = await started(bench.process(), "a")
    await writer.close()
    before = bench.raw(SESSION)
    await refuses(LeaseLost, lambda: writer.append(records("late")))
    for act in (lambda: writer.note(records("late")), writer.check, lambda: writer.publish_status(b"{}")):
        refuses_now(LeaseLost, act)
    must(bench.raw(SESSION) == before, "a closed writer writes nothing")


async def _foreign_writes_are_noticed(bench: LogBench) -> None:
    writer = await started(bench.process(), "a")
    foreign = bench.raw(SESSION) + b"somebody else"
    bench.plant(SESSION, foreign)
    await refuses(ForeignWrite, lambda: writer.append(records("b")))
    refuses_now(ForeignWrite, lambda: writer.note(records("b")))
    must(bench.raw(SESSION) == foreign, "nothing is written behind a foreign write")
    await writer.close()


async def _notes_survive_a_death(bench: LogBench) -> None:
    store = bench.process()
    writer = await started(store, "a")
    noted = writer.note(records("noted"))
    must([frame.seq for frame in noted] == [2] and writer.head == 2, "a note has its place at once")
    bench.end(store)
    found = await bench.process().open(SESSION)
    must(_texts(found.frames[-1:]) == _texts(noted), "a process death keeps notes")
    frames = await found.append(records("b"))
    must(frames[0].synced == 2, "opening made the note durable")
    await found.close()


async def _tenure_is_checked(bench: LogBench) -> None:
    writer = await started(bench.process(), "a")
    writer.check()
    bench.steal(SESSION)
    before = bench.raw(SESSION)
    refuses_now(LeaseLost, writer.check)
    await refuses(LeaseLost, lambda: writer.append(records("b")))
    refuses_now(LeaseLost, lambda: writer.note(records("b")))
    refuses_now(LeaseLost, lambda: writer.publish_status(b"{}"))
    must(bench.raw(SESSION) == before, "who lost the lease writes nothing")
    await writer.close()


async def _close_gives_the_lease_back_once(bench: LogBench) -> None:
    first, second = bench.process(), bench.process()
    writer = await started(first, "a")
    writer.note(records("noted"))
    await writer.close()
    other = await second.open(SESSION)
    must(other.head == 2, "close kept what was noted")
    await writer.close()
    other.check()
    await refuses(SessionBusy, lambda: first.open(SESSION))
    await other.close()


async def _foreseen_is_in_the_floor(bench: LogBench) -> None:
    writer = await started(bench.process(), "a")
    before = bench.raw(SESSION)
    writer.foresee(["known/v1", "unknown/v1"])
    must(bench.raw(SESSION) == before, "foreseeing writes no record")
    await writer.append(records("b"))
    await writer.close()
    await refuses(NewerWriter, lambda: bench.process().open(SESSION))
    refuses_now(NewerWriter, lambda: bench.process().read(SESSION))


async def _no_log_grows_beyond_its_ceiling(bench: LogBench) -> None:
    await (await started(bench.process(), "a")).close()
    size = len(bench.raw(SESSION))
    writer = await bench.process(ceiling_bytes=size).open(SESSION)
    must((writer.size_bytes, writer.ceiling_bytes) == (size, size), "a writer knows how long the log is and may become")
    await refuses(SessionFull, lambda: writer.append(records("b")))
    refuses_now(SessionFull, lambda: writer.note(records("b")))
    must(len(bench.raw(SESSION)) == size, "what does not fit is not written")
    await writer.close()
    writer = await bench.process().open(SESSION)
    await writer.append(records("b"))
    grown = writer.size_bytes - size
    await writer.close()
    writer = await bench.process(ceiling_bytes=size + 2 * grown - 1).open(SESSION)
    await refuses(SessionFull, lambda: writer.append(records("c")))
    await writer.close()
    last = await bench.process(ceiling_bytes=size + 2 * grown).open(SESSION)
    await last.append(records("c"))
    must(last.size_bytes == last.ceiling_bytes == len(bench.raw(SESSION)), "the last byte may be used")
    await last.close()


LEASE_CHECKS: Mapping[str, LogCheck] = {
    "STORE-1": _one_writer_at_a_time,
    "STORE-4": _fences_rise,
    "LOG-8": _tenure_is_checked,
    "LOG-9": _close_gives_the_lease_back_once,
}
LOG_CHECKS: Mapping[str, LogCheck] = {
    "STORE-2": _open_verifies,
    "STORE-2 features": _unknown_features_refuse,
    "STORE-3": _nothing_before_the_first_append,
    **READ_CHECKS,
    "LOG-1": _appended_is_durable,
    "LOG-2": _one_append_is_one_write,
    "LOG-3": _bad_batches_write_nothing,
    "LOG-4": _failures_leave_good_frames,
    "LOG-5": _dead_writers_accept_nothing,
    "LOG-6": _foreign_writes_are_noticed,
    "LOG-7": _notes_survive_a_death,
    "LOG-10": _foreseen_is_in_the_floor,
    "LOG-11": _no_log_grows_beyond_its_ceiling,
}


async def check_log(make_bench: Callable[[], LogBench]) -> None:
    """Hold an adapter to STORE-2, 3, 5 to 10 and LOG-1 to 7, 10 to 13, each on a fresh bench; raises InvariantBroken."""
    for check in LOG_CHECKS.values():
        await check(make_bench())


async def check_leases(make_bench: Callable[[], LogBench]) -> None:
    """Hold an adapter to what concerns leases: STORE-1, STORE-4, LOG-8 and LOG-9."""
    for check in LEASE_CHECKS.values():
        await check(make_bench())
