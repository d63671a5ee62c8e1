"""The part of the contract of `ports.log` that concerns what readers and openers are shown."""

from collections.abc import Mapping, Sequence

from semel.core.frame import Frame
from semel.errors import ForeignWrite, LogDamaged, WriterPoisoned, must
from semel.ports.log import Bookmark, LogWriter, SessionStore
from semel.testing.bench import SESSION, LogBench, LogCheck, records, refuses, started
from semel.testing.conformance_floor import refuses_now


async def _readers_see_only_what_stays(bench: LogBench) -> None:
    owner, reader = bench.process(), bench.process()
    writer = await started(owner, "a")
    writer.note(records("only noted"))
    before = bench.raw(SESSION)
    must(reader.read(SESSION).head <= 1, "what is not synced is not shown")
    must(bench.raw(SESSION) == before, "reading changes nothing")
    await writer.append(records("b"))
    must(reader.read(SESSION).head >= 1, "what a later frame calls synced is shown")
    writer.publish_status(b'{"head_seq":3}')
    must(reader.read_status(SESSION) == b'{"head_seq":3}', "the status is as published")
    view = reader.read(SESSION, after=1)
    must([frame.seq for frame in view.frames] == [2, 3] and view.head == 3, "what the status names is shown")
    must(view.owner is not None, "a reader learns that somebody writes")
    await writer.append(records("c"))
    await writer.close()
    view = reader.read(SESSION)
    must([frame.seq for frame in view.frames] == [0, 1, 2, 3, 4] and view.owner is None, "without an owner all is shown")


async def _frames_are_handed_out(bench: LogBench) -> None:
    writer = await started(bench.process(), "a")
    frames = [*await writer.append(records(*"bcd")), *await writer.append(records("e"))]
    await writer.close()
    whole, taken = bench.raw(SESSION), list[Frame]()
    writer = await bench.process().open(SESSION, take=taken.extend)
    must(taken[-4:] == frames and [frame.seq for frame in taken] == [0, 1, 2, 3, 4, 5], "every frame is handed out, once")
    must(len(writer.frames) == 0, "and not kept as well")
    must([writer.frame(at) for at in (5, 0, 2)] == [taken[at] for at in (5, 0, 2)], "each is found again (LOG-12)")
    await writer.close()
    bench.plant(SESSION, whole[:-3])

    def refuse(_frames: Sequence[Frame]) -> None:
        raise ForeignWrite("whatever")

    await refuses(ForeignWrite, lambda: bench.process().open(SESSION, take=refuse))
    must(bench.raw(SESSION) == whole[:-3], "what take refuses is not changed")
    await (await bench.process().open(SESSION)).close()


async def _readers_are_handed_frames_too(bench: LogBench) -> None:
    owner, reader, taken = bench.process(), bench.process(), list[Frame]()
    writer = await started(owner, "a", "b")
    await writer.append(records("c"))
    writer.note(records("only noted"))
    view = reader.read(SESSION, take=taken.extend)
    shown = reader.read(SESSION).frames
    must(tuple(taken) == shown and view.frames == (), "take gets what the view would hold")
    must(view.head == taken[-1].seq == reader.read(SESSION).head, "and the view says how far that is")
    await writer.close()
    taken.clear()
    reader.read(SESSION, after=2, take=taken.extend)
    must([frame.seq for frame in taken] == [3, 4], "only what is asked for is handed out")
    whole = bench.raw(SESSION)
    bench.plant(SESSION, whole[:-40] + b"x" + whole[-39:])
    refuses_now(LogDamaged, lambda: reader.read(SESSION, take=taken.extend))


async def _remembered_while_the_log_is_the_same(bench: LogBench) -> None:
    store, other = bench.process(), bench.process()
    must(store.recall(SESSION) is None, "nothing is known of a session that is not there")
    writer = await started(store, "a")
    await writer.close()
    mark = other.read(SESSION).mark
    must(mark is not None, "a log that is shown whole has a mark")
    content = b'{"lineage":"000102030405060708090a0b0c0d0e0f","head_seq":1}'
    other.remember(SESSION, mark or "", content)
    must(store.recall(SESSION) == content and bench.process().recall(SESSION) == content, "every process recalls it")
    whole = bench.raw(SESSION)
    writer = await store.open(SESSION)
    await writer.append(records("b"))
    await writer.close()
    must(store.recall(SESSION) is None, "a log that has grown is not what was remembered")
    bench.plant(SESSION, whole[:-1] + b"~")
    must(store.recall(SESSION) is None, "nor is one that is damaged")
    must(not store.index_faults, "which says nothing against what was remembered")


async def _a_mark_tells_that_a_log_was_written_to(bench: LogBench) -> None:
    store, other = bench.process(), bench.process()
    must(store.mark(SESSION) is None, "a session that is not there has none")
    writer = await started(store, "a")
    first = other.mark(SESSION)
    must(first is not None and first == store.mark(SESSION), "it is the same for every process")
    await writer.append(records("b"))
    second = other.mark(SESSION)
    must(second != first, "a log that has grown has another")
    await writer.close()
    must(other.mark(SESSION) == second, "giving the session back changes nothing")


async def _frames_are_found_again(bench: LogBench) -> None:
    writer = await started(bench.process(), "a")
    written = [*await writer.append(records("b")), *writer.note(records("c"))]
    must([writer.frame(frame.seq) for frame in written[::-1]] == written[::-1], "what was written is found again")
    await writer.close()


async def _opened_from_a_bookmark(bench: LogBench) -> None:
    store, other, taken = bench.process(), bench.process(), list[Frame]()
    writer = await started(store, "a", "b")
    bookmark, digest = await _closed(writer)
    must(bookmark is not None and bookmark.digest == digest, "a writer that is closed leaves a bookmark of all of it")
    writer = await store.open(SESSION, take=taken.extend, bookmark=bookmark)
    must(not taken and (writer.head, writer.digest) == (2, digest), "what nobody changed is not read again")
    must(writer.frame(1).seq == 1, "and its frames are found")
    await writer.append(records("c"))
    bookmark, _ = await _closed(writer)
    writer = await other.open(SESSION)
    await writer.append(records("d", "e"))
    await _closed(writer)
    writer = await store.open(SESSION, take=taken.extend, bookmark=bookmark)
    must([frame.seq for frame in taken] == [4, 5] and writer.head == 5, "what another process added is read, and no more")
    must([writer.frame(at).seq for at in (5, 1)] == [5, 1], "all frames are found")
    await writer.close()
    writer = await store.open(SESSION, take=taken.extend, bookmark=bookmark)
    must([frame.seq for frame in taken] == [4, 5, 4, 5], "a bookmark may be used again")
    bookmark, _ = await _closed(writer)
    must(bench.raw(SESSION).count(b"\n") == 6, "nothing is there twice")
    fence = (await _reopened(other)).fence
    must((await _reopened(store, bookmark)).fence > fence, "a bookmark keeps no fence from rising")


async def _a_bookmark_of_another_log_is_worth_nothing(bench: LogBench) -> None:
    store, taken = bench.process(), list[Frame]()
    writer = await started(store, "a", "b")
    short = bench.raw(SESSION)
    await writer.append(records("c"))
    bookmark, _ = await _closed(writer)
    whole = bench.raw(SESSION)
    bench.plant(SESSION, short)
    await refuses(LogDamaged, lambda: store.open(SESSION, bookmark=bookmark))
    await _reopened(bench.process())
    writer = await store.open(SESSION, take=taken.extend, bookmark=bookmark)
    must(
        [frame.seq for frame in taken] == [0, 1, 2] and writer.head == 2,
        "one that was cut, and another process has had, is read anew",
    )
    await writer.append(records("another"), at_ms=1)
    await writer.append(records("another"), at_ms=1)
    await writer.close()
    taken.clear()
    await _reopened(store, bookmark, taken)
    must([frame.seq for frame in taken] == [0, 1, 2, 3, 4], "so is one that went on otherwise")
    bench.plant(SESSION, whole[:100] + bytes([whole[100] ^ 1]) + whole[101:] + b"1")
    await refuses(LogDamaged, lambda: store.open(SESSION, bookmark=bookmark))
    bench.plant(SESSION, whole)
    await _reopened(store)
    writer = await bench.process().open(SESSION)
    await writer.append(records("d"))
    await writer.close()
    longer = bench.raw(SESSION)
    bench.plant(SESSION, longer[:100] + bytes([longer[100] ^ 1]) + longer[101:])
    await refuses(LogDamaged, lambda: store.open(SESSION, bookmark=bookmark))


async def _only_what_is_durable_has_a_bookmark(bench: LogBench) -> None:
    writer = await started(bench.process(), "a")
    bench.fail_next("sync")
    await refuses(WriterPoisoned, lambda: writer.append(records("b")))
    bookmark, _ = await _closed(writer)
    must(bookmark is None, "a writer whose sync failed has none")
    writer = await bench.process().open(SESSION)
    bench.plant(SESSION, bench.raw(SESSION) + b"1")
    bookmark, _ = await _closed(writer)
    must(bookmark is None, "nor has one whose file was changed by somebody else")


async def _closed(writer: LogWriter) -> tuple[Bookmark | None, str]:
    await writer.close()
    return writer.bookmark, writer.digest


async def _reopened(store: SessionStore, bookmark: Bookmark | None = None, taken: list[Frame] | None = None) -> LogWriter:
    """A writer that was opened and closed again."""
    writer = await store.open(SESSION, take=None if taken is None else taken.extend, bookmark=bookmark)
    await writer.close()
    return writer


async def _what_cannot_be_read_is_named(bench: LogBench) -> None:
    await (await started(bench.process(), "a")).close()
    await (await bench.process().open("other")).close()
    bench.plant(SESSION, b"no log at all\n" + bench.raw(SESSION))
    store = bench.process()
    refuses_now(LogDamaged, lambda: store.read(SESSION))
    must(list(store.sessions()) == [SESSION], "a session whose log is damaged is named")
    must(not store.strays(), "and one that can be named is no stray")


READ_CHECKS: Mapping[str, LogCheck] = {
    "LOG-12": _frames_are_found_again,
    "STORE-5": _readers_see_only_what_stays,
    "STORE-6": _frames_are_handed_out,
    "STORE-6 readers": _readers_are_handed_frames_too,
    "STORE-7": _remembered_while_the_log_is_the_same,
    "STORE-10": _what_cannot_be_read_is_named,
    "STORE-9": _a_mark_tells_that_a_log_was_written_to,
    "STORE-8": _opened_from_a_bookmark,
    "STORE-8 another log": _a_bookmark_of_another_log_is_worth_nothing,
    "LOG-13": _only_what_is_durable_has_a_bookmark,
}
