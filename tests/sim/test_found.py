"""Faults that the simulated world has found, each as the small test that would have found it."""

import asyncio
import errno
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from semel import Agent, Completed, Interrupted, Never, Runtime
from semel.adapters.file.reader import Reader
from semel.adapters.file.store import FileStore
from semel.adapters.memory.store import Medium
from semel.adapters.system import SystemClock
from semel.core.features import KNOWN
from semel.core.frame import Frame
from semel.core.records import Record, RunFinished
from semel.core.values import Effect
from semel.engine import flight
from semel.engine.barrier import Barrier
from semel.engine.session import SessionActor
from semel.errors import AppendRefused, CallNotSent, OutcomeUnknown, SessionBusy, WriterPoisoned
from semel.faces.cli.simulate import build
from semel.faces.views import inbox_of
from semel.ports.tool import Call, ProcessMark
from semel.testing.world import World
from semel.testing.world.disk import SimDisk
from semel.testing.world.fate import Fate
from semel.testing.world.loop import SimLoop
from semel.testing.world.medium import Medium as Platter
from storage.logs import lineage_payload, payload
from tests.engine.fakes import CountingTool, call, counting, events_of, ground, script_file
from tests.engine.test_resume import Life, hanging

pytestmark = pytest.mark.anyio


async def test_a_call_that_was_run_again_and_then_not_sent_may_still_have_run(tmp_path: Path) -> None:
    """The process that died may have sent it; that nobody was there the second time says nothing about the first."""
    medium = Medium()
    store, reached = hanging("store", Effect.IDEMPOTENT)
    model = script_file(tmp_path / "m.json", {"calls": [call("store")]}, {"text": "done"})
    await Life(medium, Agent("a", model=model, tools=[store]), reached).die_in_the_tool()

    async def nobody_is_there(_arguments: object, _call: object) -> object:
        raise CallNotSent("nobody is there")

    again = Agent("a", model=model, tools=[counting("store", Effect.IDEMPOTENT, nobody_is_there)])
    on = ground(medium)
    async with Runtime(agents=[again], ground=on) as runtime:
        run = await runtime.session("s", agent=again).send("go", key="k")
        assert isinstance(await run.result(), Completed)
    (result,) = [event["record"] for event in events_of(on.store) if event["type"] == "tool_result"]
    assert result["outcome"] == "interrupted"
    assert "It may have run." in result["output"]["text"]
    assert "nobody is there" in result["output"]["text"]


async def test_a_session_whose_first_write_was_cut_has_nothing_to_show_and_hides_no_other(tmp_path: Path) -> None:
    store = FileStore(tmp_path, SystemClock(), known=KNOWN)
    writer = await store.open("cut")
    await writer.append([lineage_payload("cut"), payload(20)])
    await writer.close()
    log = store.log_path("cut")
    log.write_bytes(log.read_bytes()[:30])
    assert inbox_of(store) == ()
    agent = Agent("a", model="scripted:nowhere.json")
    runtime = Runtime(tmp_path, agents=[agent])
    assert runtime.session("cut", agent=agent).state() is None


async def test_a_resume_looks_for_processes_of_a_call_that_nobody_wrote_down(tmp_path: Path) -> None:
    """A process that dies between the start of a command and its note knows the command by the key of its call only."""
    medium = Medium()
    deploy, reached = hanging("deploy")
    model = script_file(tmp_path / "m.json", {"calls": [call("deploy")]})
    await Life(medium, Agent("a", model=model, tools=[deploy]), reached).die_in_the_tool()
    marks: list[ProcessMark] = []

    class Searching(CountingTool):
        async def end_leftovers(self, mark: ProcessMark) -> bool:
            marks.append(mark)
            return True

    agent = Agent("a", model=model, tools=[Searching(spec=deploy.spec)])
    async with Runtime(agents=[agent], ground=ground(medium), recover="manual") as runtime:
        run = await runtime.resume("s")
        assert run is not None
        assert run.leftovers == (deploy.keys[0],)
    assert marks == [ProcessMark(pid=0, started=0, boot="", call_key=deploy.keys[0])]


async def test_the_processes_of_a_tool_that_is_deaf_are_ended_before_anybody_asks_what_became_of_its_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "CANCEL_GRACE_SECONDS", 0.05)
    happened: list[object] = []
    ended = asyncio.Event()
    mark = ProcessMark(pid=17, started=5, boot="b", call_key="k")

    class Deaf(CountingTool):
        async def run(self, arguments: object, call: Call[object]) -> object:
            call.spawned(mark)
            while not ended.is_set():
                with suppress(asyncio.CancelledError):
                    await ended.wait()
            return "late"

        async def end_leftovers(self, mark: ProcessMark) -> bool:
            happened.append(mark)
            ended.set()  # with its process the tool ends, too, so that the answer may be believed
            return True

        async def reconcile(self, call: Call[object]) -> Never:
            happened.append("asked")
            return Never()

    spec = replace(counting("deploy").spec, timeout_ms=10, reconciles=True)
    model = script_file(tmp_path / "m.json", {"calls": [call("deploy")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[Deaf(spec=spec)])
    async with Runtime(agents=[agent], ground=ground()) as runtime:
        run = await runtime.session("s", agent=agent).send("go", key="k")
        assert isinstance(await run.result(), Completed)
    assert happened == [mark, "asked"]


async def test_a_verdict_beside_the_close_out_of_its_run_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process died within the first barrier of a close-out; the next one is at the second when a person goes on."""
    commit, gate = Barrier.commit, asyncio.Event()

    async def second_is_held(self: Barrier, records: Sequence[Record]) -> None:
        if any(isinstance(record, RunFinished) for record in records):
            await gate.wait()
        await commit(self, records)

    async def lost(_arguments: object, _call: object) -> object:
        raise OutcomeUnknown("nobody knows")

    model = script_file(tmp_path / "m.json", {"calls": [call("pay")]}, {"text": "done"})
    agent = Agent("a", model=model, tools=[counting("pay", behaviour=lost)])
    async with Runtime(tmp_path / "state", agents=[agent]) as runtime:
        run = await runtime.session("s", agent=agent).send("go", key="k")
        assert isinstance(await run.result(), Interrupted)
        (item,) = runtime.inbox()
    log = FileStore(tmp_path / "state", SystemClock(), known=KNOWN).log_path("s")
    *kept, marker, last = log.read_bytes().splitlines(keepends=True)
    assert b'"turn_finished"' in marker
    assert b'"run_finished"' in last
    log.write_bytes(b"".join(kept))
    log.with_name("status.json").unlink()
    (tmp_path / "state" / "index.db").unlink()  # nothing testifies to what is cut off here
    async with Runtime(tmp_path / "state", agents=[agent], recover="manual") as runtime:
        monkeypatch.setattr(Barrier, "commit", second_is_held)
        await runtime.resume("s")
        with pytest.raises(SessionBusy, match="just being closed"):
            await runtime.resolve(item.call.call_key, "happened", go_on=True)
        gate.set()


class Trusting(Reader):
    """Planted: takes its own sync for proof."""

    def _is_durable(self, fd: int, directory: int, pending: Sequence[Frame]) -> bool:
        self._disk.sync(fd)
        self._disk.sync_directory(directory)
        return True


class Lying(SimDisk):
    """A disk whose second sync of a log fails, and whose kernel calls the pages clean."""

    syncs = 0

    def sync(self, fd: int) -> None:
        self.syncs += 1
        if self.syncs == self.fail_at:
            self._file(fd).drop()
            raise OSError(5, "Input/output error")
        super().sync(fd)

    fail_at = 0


async def vanishes(reader: type[Reader]) -> bool:
    """Whether somebody is shown a record that the power then takes away."""
    platter, fate = Platter(), Fate(0)
    fate.quiet = True
    disk = Lying(platter, fate, 1, lambda _call: None)
    store = FileStore(Path("/sim/state"), SystemClock(), known=KNOWN, disk=disk)
    writer = await store.open("box")
    await writer.append([lineage_payload("box"), payload(20)])
    disk.fail_at = disk.syncs + 1
    with pytest.raises(WriterPoisoned):
        await writer.append([payload(30)])
    await writer.close()
    beside = SimDisk(platter, fate, 2, lambda _call: None)
    reading = FileStore(Path("/sim/state"), SystemClock(), known=KNOWN, disk=beside)
    reading._reader = reader(beside, KNOWN, reading.witness)
    shown = reading.read("box").head
    beside.die()
    platter.lose_power(fate.dice("power"))
    after = FileStore(Path("/sim/state"), SystemClock(), known=KNOWN, disk=SimDisk(platter, fate, 3, lambda _call: None))
    return after.read("box").head < shown


async def test_p6_a_reader_behind_a_failed_sync_shows_only_what_the_device_has() -> None:
    assert not await vanishes(Reader)


async def test_canary_a_reader_that_trusts_its_own_sync_is_caught_by_the_power_loss() -> None:
    assert await vanishes(Trusting)


def leave_within_a_start(seed: int) -> None:
    """A runtime is left while the log is full and the start of a run tries again, in an order of the seed."""
    world = World(seed, build)
    world.fate.quiet = True

    async def main() -> None:
        agent, runtime = build(world)
        disk = world._disk
        assert disk is not None
        write = disk.write_some

        def full(fd: int, data: memoryview, offset: int | None) -> int:
            if offset is None:
                raise OSError(errno.ENOSPC, "full")
            return write(fd, data, offset)

        disk.write_some = full
        async with runtime:
            sending = asyncio.ensure_future(runtime.session("orders", agent=agent).send("go", key="k"))
            await asyncio.sleep(0.3)
        with pytest.raises(AppendRefused):
            await sending

    SimLoop(world.fate, reorder=True, dead=lambda: False).run(main())


def leave_in_forty_orders() -> None:
    for seed in range(40):
        leave_within_a_start(seed)


def test_a_runtime_is_left_while_the_start_of_a_run_fails() -> None:
    leave_in_forty_orders()


def test_canary_a_stop_that_looks_twice_is_caught_by_leaving_within_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop(self: SessionActor, drain_seconds: float) -> None:
        self._wishes.stopping = True
        if self._flights is None or self._task is None:
            return
        self._flights.stop_asking()
        await asyncio.wait({self._task}, timeout=drain_seconds)
        self._flights.leave()

    monkeypatch.setattr(SessionActor, "stop", stop)
    with pytest.raises(AttributeError):
        leave_in_forty_orders()
