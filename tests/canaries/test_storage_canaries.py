"""Faults planted in storage, each caught by a check that the real thing passes."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from semel.adapters.file.locks import OpenFileLocks
from semel.adapters.file.store import FileStore
from semel.adapters.file.writer import FileWriter
from semel.core.frame import Frame, Scan, Tail, TailKind, scan
from semel.core.header import HEADER, proven
from semel.errors import InvariantBroken
from semel.ports.log import Payload, TakeFrames, View
from semel.testing.conformance import LEASE_CHECKS, LOG_CHECKS
from semel.testing.faults import FaultyDisk
from semel.testing.power import ForgetfulDisk
from storage.benches import FileBench
from storage.logs import reference_log
from storage.scenario import Oracle, death_sweep, holds, scenario, store_at
from storage.sweeps import bit_flips, prefixes, residues, surgery, tally, zero_tails
from storage.test_tail import torn_writes


def naive_scan(data: bytes, anchor: int = 0) -> Scan:
    """The obvious tail rule: a last frame that is short or wrong was torn, anything else is damage."""
    found = scan(data, anchor)
    at = found.tail.offset
    if at == len(data):
        return found
    header = HEADER.match(data, at)
    reaches_the_end = data.find(b"\n", at) < 0 if header is None else header.end() + int(header[7]) + 1 >= len(data)
    kind = TailKind.TORN if reaches_the_end else TailKind.DAMAGED
    return Scan(frames=found.frames, tail=Tail(kind=kind, offset=at, reason="guessed"), point=found.point)


def test_the_naive_tail_rule_is_caught_by_the_flip_sweep() -> None:
    log = reference_log()
    counts = bit_flips(log, naive_scan)
    total: Counter[str] = tally(counts.values())
    print(f"naive rule: {total['lost']} of {sum(total.values())} flips lose acknowledged records; {dict(counts['last batch'])}")
    assert total["lost"] > 300
    assert counts["len"]["lost"] > 0  # HAZ1: in the middle of the log, a longer length swallows what follows
    assert prefixes(log, naive_scan) == prefixes(log)  # and no test of mere prefixes would have noticed


def silent_scan(data: bytes, anchor: int = 0) -> Scan:
    """Takes what is cut short for the end of the log, without a word."""
    found = scan(data, anchor)
    return found if found.tail.kind is TailKind.DAMAGED else scan(data[: found.tail.offset])


def test_a_cut_that_is_passed_over_in_silence_is_caught_by_the_prefixes_and_by_the_zeros() -> None:
    log = reference_log()
    assert prefixes(log, silent_scan)["torn"] == 0
    assert zero_tails(log, silent_scan)["torn"] == 0


def test_the_naive_tail_rule_is_caught_by_the_torn_writes() -> None:
    with pytest.raises(AssertionError):
        torn_writes(100, sampled=True, scan=naive_scan)


def unchained_scan(data: bytes) -> Scan:
    """Takes each line whose header is proven and whose seq is the next, whatever was written before it."""
    frames: list[Frame] = []
    at = 0
    while (header := proven(data, at)) is not None and header.whole and header.seq == len(frames):
        body, end = header.payload_offset, header.payload_offset + header.length
        text = data[at:body].decode().split(" ")
        frames.append(
            Frame(
                **{name: getattr(header, name) for name in ("ver", "seq", "at_ms", "fence", "synced", "left")},
                requires=() if text[7] == "-" else tuple(text[7].split(",")),
                digest=text[9],
                payload=data[body:end],
                offset=at,
            )
        )
        at = end + 1
    kind = TailKind.CLEAN if at == len(data) else TailKind.DAMAGED
    found = Tail(kind=kind, offset=at, reason="" if kind is TailKind.CLEAN else "guessed")
    return Scan(frames=tuple(frames), tail=found, point=scan(data).point)


def test_lines_that_are_not_chained_are_caught_by_the_residues_and_by_the_surgery() -> None:
    log = reference_log()
    assert unchained_scan(log.data).frames == log.frames
    revived = residues(log, unchained_scan)["revived"]
    taken = {name: count["changed"] for name, count in surgery(log, reference_log(lineage="f" * 32), unchained_scan).items()}
    print(f"without a chain {revived} old records revive, and lines are taken: {taken}")
    assert revived > 20
    assert (taken["spliced"], taken["continued"]) == (27, 26)


class LeakyStore(FileStore):
    """Shows every frame that it finds in the file."""

    def read(self, session: str, after: int = -1, *, take: TakeFrames | None = None) -> View:
        frames = scan(self.log_path(session).read_bytes()).frames
        return View(frames=tuple(frame for frame in frames if frame.seq > after), head=frames[-1].seq, owner=self.owner(session))


@pytest.mark.anyio
async def test_a_reader_that_shows_unsynced_frames_is_caught_by_store_5(tmp_path: Path) -> None:
    class Bench(FileBench):
        def process(self) -> FileStore:
            store = super().process()
            store.__class__ = LeakyStore
            return store

    with pytest.raises(InvariantBroken, match="what is not synced is not shown"):
        await LOG_CHECKS["STORE-5"](Bench(tmp_path / "leaky"))
    await LOG_CHECKS["STORE-5"](FileBench(tmp_path / "sound"))


class HastyWriter(FileWriter):
    """Acknowledges before the sync."""

    def _sync(self, upto: int) -> None:
        self._durable = upto


class HastyStore(FileStore):
    async def open(self, session: str) -> FileWriter:
        writer = await super().open(session)
        writer.__class__ = HastyWriter
        return writer


class EarlyWriter(FileWriter):
    """Acknowledges a batch, and writes it when it is asked for the next thing."""

    _due: tuple[Sequence[Payload], int] | None = None

    def _catch_up(self) -> None:
        due, self._due = self._due, None
        if due is not None:
            self._durable = self._write(*due)[-1].seq

    async def append(self, batch: Sequence[Payload], *, at_ms: int | None = None) -> Sequence[Frame]:
        self._catch_up()
        self._due = batch, self._clock.now_ms()
        return self._encode(*self._due).frames

    def note(self, batch: Sequence[Payload], *, at_ms: int | None = None) -> Sequence[Frame]:
        self._catch_up()
        return super().note(batch, at_ms=at_ms)

    def publish_status(self, status: bytes) -> None:
        self._catch_up()
        super().publish_status(status)

    async def close(self) -> None:
        self._catch_up()
        await super().close()


class EarlyStore(FileStore):
    async def open(self, session: str) -> FileWriter:
        writer = await super().open(session)
        writer.__class__ = EarlyWriter
        return writer


@pytest.mark.anyio
async def test_an_acknowledgement_before_the_write_is_caught_by_the_deaths(tmp_path: Path) -> None:
    def early(root: Path, disk: FaultyDisk) -> FileStore:
        store = store_at(root, disk)
        store.__class__ = EarlyStore
        return store

    oracle = Oracle()
    await scenario(early(tmp_path / "alive", FaultyDisk()), oracle)
    await holds(tmp_path / "alive", oracle)  # as long as nobody dies, nothing is amiss
    with pytest.raises(AssertionError):
        await death_sweep(tmp_path / "deaths", early)


@pytest.mark.anyio
async def test_an_acknowledgement_before_the_sync_is_caught_by_the_power_loss_sweep(tmp_path: Path) -> None:
    def hasty(root: Path, disk: FaultyDisk) -> FileStore:
        store = store_at(root, disk)
        store.__class__ = HastyStore
        return store

    with pytest.raises(AssertionError):
        await death_sweep(tmp_path / "hasty", hasty, ForgetfulDisk)
    assert await death_sweep(tmp_path / "sound", disk=ForgetfulDisk) > 100


@pytest.mark.anyio
async def test_a_missing_directory_sync_is_caught_by_the_power_loss_sweep(tmp_path: Path) -> None:
    class NoParents(FileStore):
        async def open(self, session: str) -> FileWriter:
            writer = await FileStore.open(self, session)
            writer._parents_pending = False
            return writer

    def careless(root: Path, disk: FaultyDisk) -> FileStore:
        store = store_at(root, disk)
        store.__class__ = NoParents
        return store

    with pytest.raises(AssertionError):
        await death_sweep(tmp_path, careless, ForgetfulDisk)


class EmptyLocks(OpenFileLocks):
    """Always say yes."""

    def lock(self, fd: int) -> bool:
        return True


@pytest.mark.anyio
async def test_a_lock_that_excludes_nobody_is_caught_by_store_1(tmp_path: Path) -> None:
    with pytest.raises(InvariantBroken, match="SessionBusy was expected"):
        await LEASE_CHECKS["STORE-1"](FileBench(tmp_path, locks=EmptyLocks()))


@pytest.mark.anyio
async def test_a_writer_that_does_not_look_at_its_file_is_caught_by_log_6(tmp_path: Path) -> None:
    class Blind(FileWriter):
        def _allow(self) -> None:
            self.check()

    class BlindStore(FileStore):
        async def open(self, session: str) -> FileWriter:
            writer = await super().open(session)
            writer.__class__ = Blind
            return writer

    class Bench(FileBench):
        def process(self) -> FileStore:
            store = super().process()
            store.__class__ = BlindStore
            return store

    with pytest.raises(InvariantBroken, match="ForeignWrite was expected"):
        await LOG_CHECKS["LOG-6"](Bench(tmp_path))
